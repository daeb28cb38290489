/**
 * Who may ask: teams, users, keys and tokens.
 *
 * Keys are `atoll_` and 40 hex digits; the same digits behind `e2b_` are the same key. Only a hash of the digits is stored. The
 * digits are derived from the operation that makes the key, so that a repeat under an idempotency key can show them again.
 */
import { createHmac, hash } from 'node:crypto';
import {
  type BodyOf,
  type Conditions,
  type KeyId,
  type KeyView,
  newId,
  PlatformError,
  type ResultOf,
  type routes,
  type SandboxId,
  type Scope,
  type TeamId,
} from '../protocol/index.ts';
import type { KeyRecord, TeamRecord, UserRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import type { Mutations } from './mutations.ts';
import type { SandboxRecords } from './sandbox-records.ts';

const keyPattern = /^(?:atoll|e2b)_([0-9a-f]{40})$/;
/** Keys looked up lately; bounded, and emptied of a key when it is revoked. */
const cachedKeysMax = 10_000;

/** What a sandbox's own secret opens. */
const sandboxScopes: readonly Scope[] = ['sandboxes:read', 'sandboxes:write', 'sandboxes:exec'];

type NewKey = ResultOf<typeof routes.createKey>;

export class Who {
  readonly #context: ControlContext;
  readonly #mutations: Mutations;
  readonly #records: SandboxRecords;
  readonly #cache = new Map<string, KeyRecord>();
  /** How many keys this process has revoked. */
  #revocations = 0;

  constructor(context: ControlContext, parts: { mutations: Mutations; records: SandboxRecords }) {
    this.#context = context;
    this.#mutations = parts.mutations;
    this.#records = parts.records;
  }

  async authenticate(keyText: string): Promise<Caller> {
    const digits = keyPattern.exec(keyText)?.[1];
    if (digits === undefined) throw unauthenticated('A key is "atoll_" and 40 hex digits.');
    const hash = hashOf(digits);
    const record = this.#cache.get(hash) ?? (await this.#lookUp(hash));
    if (record === undefined) throw unauthenticated('This key is not known here.');
    if (record.revokedAtMs !== null) throw unauthenticated('This key was revoked.');
    if (record.expiresAtMs !== null && record.expiresAtMs <= this.#context.clock.nowMs()) {
      throw unauthenticated('This key has expired.');
    }
    return {
      keyId: record.id,
      teamId: record.teamId,
      userId: record.userId,
      scopes: record.scopes as readonly Scope[],
      sandboxId: record.sandboxId,
      name: record.name,
    };
  }

  /**
   * Whoever brings a secret of one sandbox instead of a key: it acts for the key that made the sandbox, on this sandbox alone. Undefined: there is no
   * such sandbox. That the secret is right is for the one who asks to see to.
   */
  async actingFor(sandboxId: SandboxId): Promise<Caller | undefined> {
    const record = await this.#records.find(sandboxId);
    if (record === undefined) return undefined;
    const { teamId, userId, createdBy: keyId } = record;
    return { keyId, teamId, userId, scopes: sandboxScopes, sandboxId, name: `of ${sandboxId}` };
  }

  async #lookUp(hash: string): Promise<KeyRecord | undefined> {
    for (;;) {
      const revocations = this.#revocations;
      const record = await this.#context.store.read((tables) => tables.keys.findByHash(hash));
      // What was read before a revocation must not be kept after it: the key would live on.
      if (revocations !== this.#revocations) continue;
      if (this.#cache.size >= cachedKeysMax) this.#cache.clear();
      if (record !== undefined) this.#cache.set(hash, record);
      return record;
    }
  }

  async me(caller: Caller): Promise<KeyView> {
    const record = await this.#context.store.read((tables) => tables.keys.find(caller.keyId));
    if (record === undefined) throw unauthenticated('This key is not known here.');
    return viewOf(record);
  }

  async createKey(caller: Caller, conditions: Conditions, body: BodyOf<typeof routes.createKey>): Promise<NewKey> {
    checkScopes(caller, body.scopes);
    if (body.teamId !== undefined && body.teamId !== caller.teamId && !caller.scopes.includes('admin')) {
      throw new PlatformError('forbidden', 'Only a key with the scope "admin" makes keys for other teams.');
    }
    const teamId = body.teamId ?? caller.teamId;
    return await this.#makeKey(caller, conditions, {
      kind: 'createKey',
      request: body,
      check: async () => {
        const { store } = this.#context;
        const team = await store.read((tables) => tables.teams.find(teamId));
        if (team === undefined) throw new PlatformError('team_not_found', `There is no team ${teamId}.`);
        if (body.userId === undefined) return;
        const { userId } = body;
        const user = await store.read((tables) => tables.users.find(userId));
        if (user?.teamId !== teamId)
          throw new PlatformError('user_not_found', `There is no user ${userId} in this team.`);
      },
      key: {
        teamId,
        userId: body.userId ?? null,
        name: body.name,
        scopes: body.scopes,
        sandboxId: null,
        expiresInMs: body.expiresInMs ?? null,
      },
    });
  }

  async createSandboxToken(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<typeof routes.createSandboxToken>,
  ): Promise<NewKey> {
    checkScopes(caller, body.scopes);
    return await this.#makeKey(caller, conditions, {
      kind: 'createSandboxToken',
      request: { sandboxId, body },
      check: async () => {
        await this.#records.get(caller, sandboxId);
      },
      key: {
        teamId: caller.teamId,
        userId: caller.userId,
        name: body.name,
        scopes: body.scopes,
        sandboxId,
        expiresInMs: body.expiresInMs,
      },
    });
  }

  #makeKey(
    caller: Caller,
    conditions: Conditions,
    asked: {
      kind: string;
      request: unknown;
      check: () => Promise<void>;
      key: Pick<KeyRecord, 'teamId' | 'userId' | 'name' | 'scopes' | 'sandboxId'> & { expiresInMs: number | null };
    },
  ): Promise<NewKey> {
    const { expiresInMs, ...key } = asked.key;
    return this.#mutations.run({
      caller,
      kind: asked.kind,
      conditions,
      request: asked.request,
      subject: () => newId('key', this.#context.random),
      effect: async (operation) => {
        await asked.check();
        const digits = this.#digitsOf(operation);
        const nowMs = this.#context.clock.nowMs();
        const record: KeyRecord = {
          ...key,
          id: operation.subjectId as KeyId,
          hash: hashOf(digits),
          createdAtMs: nowMs,
          expiresAtMs: expiresInMs === null ? null : nowMs + expiresInMs,
          revokedAtMs: null,
        };
        const made = await this.#context.store.transact(async (tables) => {
          const found = await tables.keys.find(record.id);
          if (found === undefined) await tables.keys.insert(record);
          return found ?? record;
        });
        return { ...viewOf(made), key: `atoll_${digits}` };
      },
      keep: ({ key: _, ...view }) => view,
      restore: (kept, operation) => ({ ...(kept as KeyView), key: `atoll_${this.#digitsOf(operation)}` }),
    });
  }

  async listKeys(caller: Caller): Promise<ResultOf<typeof routes.listKeys>> {
    const keys = await this.#context.store.read((tables) => tables.keys.list(caller.teamId));
    return { items: keys.map(viewOf) };
  }

  revokeKey(caller: Caller, conditions: Conditions, keyId: KeyId): Promise<void> {
    return this.#mutations.run({
      caller,
      kind: 'revokeKey',
      conditions,
      request: { keyId },
      effect: async () => {
        const record = await this.#context.store.transact(async (tables) => {
          const found = await tables.keys.find(keyId);
          if (found === undefined || (found.teamId !== caller.teamId && !caller.scopes.includes('admin'))) {
            throw new PlatformError('key_not_found', `There is no key ${keyId} in this team.`);
          }
          await tables.keys.revoke({ id: keyId, revokedAtMs: this.#context.clock.nowMs() });
          return found;
        });
        this.#revocations++;
        this.#cache.delete(record.hash);
      },
      keep: () => null,
      restore: () => undefined,
    });
  }

  createUser(caller: Caller, conditions: Conditions, body: BodyOf<typeof routes.createUser>) {
    return this.#mutations.run({
      caller,
      kind: 'createUser',
      conditions,
      request: body,
      subject: () => newId('user', this.#context.random),
      effect: async (operation) => {
        const record: UserRecord = {
          id: operation.subjectId as UserRecord['id'],
          teamId: caller.teamId,
          name: body.name,
          createdAtMs: this.#context.clock.nowMs(),
        };
        const made = await this.#context.store.transact(async (tables) => {
          const found = await tables.users.find(record.id);
          if (found === undefined) await tables.users.insert(record);
          return found ?? record;
        });
        return namedView(made);
      },
    });
  }

  async listUsers(caller: Caller): Promise<ResultOf<typeof routes.listUsers>> {
    const users = await this.#context.store.read((tables) => tables.users.list(caller.teamId));
    return { items: users.map(namedView) };
  }

  createTeam(caller: Caller, conditions: Conditions, body: BodyOf<typeof routes.createTeam>) {
    return this.#mutations.run({
      caller,
      kind: 'createTeam',
      conditions,
      request: body,
      subject: () => newId('team', this.#context.random),
      effect: async (operation) => {
        const record: TeamRecord = {
          id: operation.subjectId as TeamId,
          name: body.name,
          createdAtMs: this.#context.clock.nowMs(),
          diskBytes: body.diskBytes,
        };
        const made = await this.#context.store.transact(async (tables) => {
          const found = await tables.teams.find(record.id);
          if (found === undefined) await tables.teams.insert(record);
          return found ?? record;
        });
        return namedView(made);
      },
    });
  }

  updateTeam(caller: Caller, conditions: Conditions, teamId: TeamId, body: BodyOf<typeof routes.updateTeam>) {
    return this.#mutations.run({
      caller,
      kind: 'updateTeam',
      conditions,
      request: { teamId, body },
      effect: async () => {
        const team = await this.#context.store.transact(async (tables) => {
          await tables.teams.setDiskBytes({ id: teamId, diskBytes: body.diskBytes });
          return await tables.teams.find(teamId);
        });
        if (team === undefined) throw new PlatformError('team_not_found', `There is no team ${teamId}.`);
        return namedView(team);
      },
    });
  }

  async listTeams(_caller: Caller): Promise<ResultOf<typeof routes.listTeams>> {
    const teams = await this.#context.store.read((tables) => tables.teams.list());
    return { items: teams.map(namedView) };
  }

  /**
   * The first team and its administrator's key, made at first start. The text is derived from the secret alone, so that a
   * crash before it was written down loses nothing; undefined once the key was revoked.
   */
  async ensureFirstKey(): Promise<string | undefined> {
    const { clock, random, store } = this.#context;
    const digits = this.#digitsOf({ id: 'first' });
    const nowMs = clock.nowMs();
    const team: TeamRecord = { id: newId('team', random), name: 'default', createdAtMs: nowMs, diskBytes: null };
    const key: KeyRecord = {
      id: newId('key', random),
      teamId: team.id,
      userId: null,
      name: 'first key',
      hash: hashOf(digits),
      scopes: ['admin'],
      sandboxId: null,
      createdAtMs: nowMs,
      expiresAtMs: null,
      revokedAtMs: null,
    };
    const current = await store.transact(async (tables) => {
      const found = await tables.keys.findByHash(key.hash);
      if (found !== undefined || (await tables.teams.list()).length > 0) return found;
      await tables.teams.insert(team);
      await tables.keys.insert(key);
      return key;
    });
    return current === undefined || current.revokedAtMs !== null ? undefined : `atoll_${digits}`;
  }

  #digitsOf(operation: { readonly id: string }): string {
    return createHmac('sha256', this.#context.secret).update(`key ${operation.id}`).digest('hex').slice(0, 40);
  }
}

/** Only the digits count, so that both spellings are one key. */
function hashOf(digits: string): string {
  return hash('sha256', digits, 'hex');
}

function checkScopes(caller: Caller, wanted: readonly Scope[]): void {
  if (caller.sandboxId !== null) {
    throw new PlatformError('forbidden', 'A token of one sandbox makes no keys: they would outlive or outreach it.');
  }
  if (caller.scopes.includes('admin')) return;
  const missing = wanted.filter((scope) => !caller.scopes.includes(scope));
  if (missing.length === 0) return;
  const details = { missing };
  throw new PlatformError('forbidden', `This key lacks ${missing.join(', ')}, and cannot give what it lacks.`, {
    details,
  });
}

function unauthenticated(message: string): PlatformError {
  return new PlatformError('unauthenticated', message);
}

function namedView<Kind extends UserRecord | TeamRecord>(record: Kind) {
  const { createdAtMs, ...rest } = record;
  return { ...rest, createdAt: new Date(createdAtMs).toISOString() };
}

function viewOf(record: KeyRecord): KeyView {
  const when = (atMs: number | null) => (atMs === null ? null : new Date(atMs).toISOString());
  return {
    id: record.id,
    teamId: record.teamId,
    userId: record.userId,
    name: record.name,
    scopes: [...record.scopes] as Scope[],
    sandboxId: record.sandboxId,
    createdAt: new Date(record.createdAtMs).toISOString(),
    expiresAt: when(record.expiresAtMs),
    revokedAt: when(record.revokedAtMs),
  };
}
