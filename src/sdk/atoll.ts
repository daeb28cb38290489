/** The client: everything that one key can reach on one server. */
import { type BodyInputOf, type KeyView, type ResultOf, routes, type SandboxView } from '../protocol/index.ts';
import { Backups } from './backups.ts';
import { Checkpoints } from './checkpoints.ts';
import { type CallOptions, Connection, type ConnectionOptions } from './connection.ts';
import { Events } from './events.ts';
import { Leases } from './leases.ts';
import { Plans } from './plans.ts';
import { type CreateSandboxOptions, type ListSandboxesOptions, listQuery, Sandbox } from './sandbox.ts';
import { Templates } from './templates.ts';
import { Workspaces } from './workspaces.ts';

type Routes = typeof routes;
type Items<Name extends 'listKeys' | 'listUsers' | 'listTeams' | 'listWebhooks'> = ResultOf<Routes[Name]>['items'];
type Look = { readonly signal?: AbortSignal };

export class Atoll {
  readonly connection: Connection;
  readonly sandboxes: Sandboxes;
  readonly checkpoints: Checkpoints;
  readonly backups: Backups;
  readonly leases: Leases;
  readonly plans: Plans;
  readonly events: Events;
  readonly keys: Keys;
  readonly users: Users;
  readonly teams: Teams;
  readonly webhooks: Webhooks;
  readonly templates: Templates;
  readonly workspaces: Workspaces;

  constructor(options: ConnectionOptions) {
    this.connection = new Connection(options);
    this.sandboxes = new Sandboxes(this);
    this.checkpoints = new Checkpoints(this.connection);
    this.backups = new Backups(this.connection);
    this.leases = new Leases(this.connection);
    this.plans = new Plans(this.connection);
    this.events = new Events(this.connection);
    this.keys = new Keys(this.connection);
    this.users = new Users(this.connection);
    this.teams = new Teams(this.connection);
    this.webhooks = new Webhooks(this.connection);
    this.templates = new Templates(this.connection);
    this.workspaces = new Workspaces(this.connection);
  }

  /** The key that this client uses. */
  whoAmI(options: Look = {}): Promise<KeyView> {
    return this.connection.call(routes.whoAmI, options);
  }

  /** What became of a change, by its operation id or its idempotency key. */
  operation(
    reference: { readonly id: string } | { readonly idempotencyKey: string },
    options: Look = {},
  ): Promise<ResultOf<Routes['getOperation']>> {
    const operation = 'id' in reference ? reference.id : `key:${reference.idempotencyKey}`;
    return this.connection.call(routes.getOperation, { params: { operation }, ...options });
  }

  /** Settles differences between records and nodes; with `dryRun` only tells them. */
  reconcile(options: CallOptions & { readonly dryRun?: boolean } = {}): Promise<ResultOf<Routes['reconcile']>> {
    const { dryRun = false, ...call } = options;
    return this.connection.call(routes.reconcile, { body: { dryRun }, ...call });
  }
}

class Sandboxes {
  readonly #client: Atoll;

  constructor(client: Atoll) {
    this.#client = client;
  }

  create(options: CreateSandboxOptions & CallOptions = {}): Promise<Sandbox> {
    return Sandbox.create({ ...options, client: this.#client });
  }

  getOrCreate(options: CreateSandboxOptions & CallOptions & { readonly name: string }): Promise<Sandbox> {
    return Sandbox.getOrCreate({ ...options, client: this.#client });
  }

  connect(sandboxId: string, options: Look = {}): Promise<Sandbox> {
    return Sandbox.connect(sandboxId, { ...options, client: this.#client });
  }

  get(sandboxId: string, options: Look = {}): Promise<SandboxView> {
    return this.#client.connection.call(routes.getSandbox, { params: { sandboxId }, ...options });
  }

  /** One page, newest first. */
  list(options: ListSandboxesOptions & Look = {}): Promise<ResultOf<Routes['listSandboxes']>> {
    const { signal, ...query } = options;
    return this.#client.connection.call(routes.listSandboxes, { query: listQuery(query), ...(signal && { signal }) });
  }

  /** Every one, page by page. */
  async *iterate(options: Omit<ListSandboxesOptions, 'cursor'> & Look = {}): AsyncGenerator<SandboxView> {
    for (let page = await this.list(options); ; page = await this.list({ ...options, cursor: page.nextCursor })) {
      yield* page.items;
      if (page.nextCursor === null) return;
    }
  }

  /** Makes an expiring token that reaches this sandbox only. */
  createToken(
    sandboxId: string,
    body: BodyInputOf<Routes['createSandboxToken']> = {},
    options: CallOptions = {},
  ): Promise<ResultOf<Routes['createSandboxToken']>> {
    return this.#client.connection.call(routes.createSandboxToken, { params: { sandboxId }, body, ...options });
  }
}

class Keys {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  create(body: BodyInputOf<Routes['createKey']>, options: CallOptions = {}): Promise<ResultOf<Routes['createKey']>> {
    return this.#connection.call(routes.createKey, { body, ...options });
  }

  async list(options: Look = {}): Promise<Items<'listKeys'>> {
    return (await this.#connection.call(routes.listKeys, options)).items;
  }

  async revoke(keyId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.call(routes.revokeKey, { params: { keyId }, ...options });
  }
}

class Users {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  create(body: BodyInputOf<Routes['createUser']>, options: CallOptions = {}): Promise<ResultOf<Routes['createUser']>> {
    return this.#connection.call(routes.createUser, { body, ...options });
  }

  async list(options: Look = {}): Promise<Items<'listUsers'>> {
    return (await this.#connection.call(routes.listUsers, options)).items;
  }
}

class Teams {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  create(body: BodyInputOf<Routes['createTeam']>, options: CallOptions = {}): Promise<ResultOf<Routes['createTeam']>> {
    return this.#connection.call(routes.createTeam, { body, ...options });
  }

  /** Changes what a team may take on disks. */
  update(
    teamId: string,
    body: BodyInputOf<Routes['updateTeam']>,
    options: CallOptions = {},
  ): Promise<ResultOf<Routes['updateTeam']>> {
    return this.#connection.call(routes.updateTeam, { params: { teamId }, body, ...options });
  }

  async list(options: Look = {}): Promise<Items<'listTeams'>> {
    return (await this.#connection.call(routes.listTeams, options)).items;
  }
}

class Webhooks {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** The secret that signs what is delivered is in this answer only. */
  create(
    body: BodyInputOf<Routes['createWebhook']>,
    options: CallOptions = {},
  ): Promise<ResultOf<Routes['createWebhook']>> {
    return this.#connection.call(routes.createWebhook, { body, ...options });
  }

  async list(options: Look = {}): Promise<Items<'listWebhooks'>> {
    return (await this.#connection.call(routes.listWebhooks, options)).items;
  }

  async delete(webhookId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.call(routes.deleteWebhook, { params: { webhookId }, ...options });
  }
}
