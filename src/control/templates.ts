/**
 * Templates: what a team's sandboxes start from. Control checks who asks and gives ids; the node keeps and builds them. A template is where
 * sandboxes are placed, so builds go to the node that new sandboxes go to.
 */
import {
  type BodyOf,
  type BuildId,
  type BuildItem,
  type BuildLogItem,
  type BuildView,
  type Conditions,
  type ContextId,
  type NodeApi,
  type NodeBuild,
  type NodeTemplate,
  newId,
  type QueryOf,
  type ResultOf,
  type routes,
  type TemplateView,
} from '../protocol/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import type { Mutations } from './mutations.ts';

type Routes = typeof routes;
type BuildAddress = { readonly buildId: BuildId };

const pieceBytes = 1024 * 1024;

const hostView: TemplateView = {
  ...{ name: 'host', id: null, from: "the machine's own /usr, copy-on-write" },
  ...{ env: {}, workdir: '/workspace', user: 'root', start: null },
  ...{ sizeBytes: null, createdAt: null, sandboxes: null },
};

export class Templates {
  readonly #context: ControlContext;
  readonly #mutations: Mutations;

  constructor(context: ControlContext, parts: { readonly mutations: Mutations }) {
    this.#context = context;
    this.#mutations = parts.mutations;
  }

  build(caller: Caller, conditions: Conditions, body: BodyOf<Routes['buildTemplate']>): Promise<BuildView> {
    const { name, source } = body;
    return this.#mutations.run({
      caller,
      kind: 'buildTemplate',
      conditions,
      request: body,
      subject: () => newId('build', this.#context.random),
      // The node answers a build that it knows, so that a repeat begins nothing.
      effect: async (operation) => {
        const order = {
          buildId: operation.subjectId as BuildId,
          teamId: caller.teamId,
          name,
          source: source.kind === 'definition' ? { ...source, contextId: source.contextId ?? null } : source,
          network: this.#context.settings.defaultNetwork,
          mayPull: caller.scopes.includes('admin'),
        };
        return buildViewOf(await this.#call((node) => node.templates.build(order)));
      },
    });
  }

  async uploadContext(bytes: AsyncIterable<Uint8Array>): Promise<ResultOf<Routes['uploadTemplateContext']>> {
    const contextId = newId('context', this.#context.random);
    let offset = 0;
    for await (const piece of piecesOf(bytes)) {
      offset = await this.#call((node) => node.templates.appendContext({ contextId, offset, bytes: piece }));
    }
    return { id: contextId as ContextId, bytes: offset };
  }

  async getBuild(caller: Caller, { buildId }: BuildAddress): Promise<BuildView> {
    const order = { teamId: caller.teamId, buildId };
    return buildViewOf(await this.#call((node) => node.templates.getBuild(order)));
  }

  async *follow(
    caller: Caller,
    { buildId }: BuildAddress,
    query: QueryOf<Routes['readTemplateBuildLog']>,
    signal: AbortSignal,
  ): AsyncGenerator<BuildLogItem, void> {
    const order = { teamId: caller.teamId, buildId, after: Number(query.cursor ?? 0) };
    const items = await this.#call(async (node) => node.templates.followBuild(order, signal));
    for await (const item of items) yield itemViewOf(item);
  }

  /** What there is now. */
  async log(
    caller: Caller,
    address: BuildAddress,
    query: QueryOf<Routes['readTemplateBuildLog']>,
  ): Promise<ResultOf<Routes['readTemplateBuildLog']>> {
    const { buildId } = address;
    const order = { teamId: caller.teamId, buildId, after: Number(query.cursor ?? 0) };
    const items = await this.#call((node) => node.templates.readBuild(order));
    return { items: items.map(itemViewOf) };
  }

  cancel(caller: Caller, address: BuildAddress, conditions: Conditions): Promise<BuildView> {
    const order = { teamId: caller.teamId, buildId: address.buildId };
    return this.#mutations.run({
      caller,
      kind: 'cancelTemplateBuild',
      conditions,
      request: address,
      effect: async () => buildViewOf(await this.#call((node) => node.templates.cancelBuild(order))),
    });
  }

  async list(caller: Caller): Promise<ResultOf<Routes['listTemplates']>> {
    const found = await this.#call((node) => node.templates.list({ teamId: caller.teamId }));
    return { items: [hostView, ...found.map(templateViewOf)] };
  }

  async get(caller: Caller, name: string): Promise<TemplateView> {
    if (name === hostView.name) return hostView;
    return templateViewOf(await this.#call((node) => node.templates.get({ teamId: caller.teamId, name })));
  }

  remove(caller: Caller, name: string, conditions: Conditions): Promise<void> {
    return this.#mutations.run({
      caller,
      kind: 'removeTemplate',
      conditions,
      request: { name },
      effect: () => this.#call((node) => node.templates.remove({ teamId: caller.teamId, name })),
      keep: () => null,
      restore: () => undefined,
    });
  }

  #call<Result>(work: (node: NodeApi) => Promise<Result>): Promise<Result> {
    const { nodes } = this.#context;
    return nodes.call(nodes.choose(), work);
  }
}

function buildViewOf(build: NodeBuild): BuildView {
  const { buildId, name, state, startedAtMs, endedAtMs, templateId, error } = build;
  const endedAt = endedAtMs === null ? null : instantOf(endedAtMs);
  const shown = error === null ? null : { ...error, details: { ...error.details } };
  return { id: buildId, name, state, startedAt: instantOf(startedAtMs), endedAt, templateId, error: shown };
}

function itemViewOf(item: BuildItem): BuildLogItem {
  const { sequence, ...rest } = item;
  const cursor = String(sequence);
  if (rest.kind === 'ended') return { kind: 'ended', build: buildViewOf(rest.build), cursor };
  return { ...rest, cursor };
}

function templateViewOf(template: NodeTemplate): TemplateView {
  const { name, templateId, from, env, workdir, user, start, sizeBytes, createdAtMs, sandboxes } = template;
  const createdAt = instantOf(createdAtMs);
  return {
    ...{ name, id: templateId, from, env: { ...env }, workdir, user, sizeBytes, createdAt, sandboxes },
    start: start as TemplateView['start'],
  };
}

function instantOf(ms: number): string {
  return new Date(ms).toISOString();
}

async function* piecesOf(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void> {
  let held: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of bytes) {
    held.push(chunk);
    size += chunk.byteLength;
    if (size < pieceBytes) continue;
    yield Buffer.concat(held);
    held = [];
    size = 0;
  }
  yield Buffer.concat(held);
}
