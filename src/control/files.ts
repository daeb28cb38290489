/**
 * Files of a running sandbox. Control checks who may and passes on; the node and the sandbox do it. A look needs no lease; what changes
 * something is admitted like a command.
 */
import type {
  BodyOf,
  Conditions,
  FileAction,
  FileActionKind,
  FileAnswers,
  FileContent,
  FileEventView,
  FileOrder,
  FileView,
  Id,
  NodeApi,
  QueryOf,
  ResultOf,
  routes,
  SandboxId,
  WriteFileOrder,
} from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { CallParts } from './change-in-life.ts';
import type { ControlContext } from './context.ts';
import { checkFileCursor, modeOf, ownerOf, viewOfChange, viewOfFile } from './file-views.ts';
import { filterEvents } from './file-watch.ts';
import { holdContent, inDoubt } from './keyed-content.ts';
import type { Operation } from './mutations.ts';
import { lifeIn, lifeOf } from './sandbox-records.ts';
import { sessionNowhere } from './session-views.ts';

type Routes = typeof routes;
type Query<Name extends keyof Routes> = QueryOf<Routes[Name]>;
type Body<Name extends keyof Routes> = BodyOf<Routes[Name]>;
type WriteWanted = Query<'writeFile'> & { readonly expected: WriteFileOrder['expected'] };

interface Asked {
  readonly caller: Caller;
  readonly sandboxId: SandboxId;
  readonly conditions: Conditions;
  readonly user: string | undefined;
  /** By id or name. Its user is the default, and relative paths are below where its shell is. */
  readonly session: string | undefined;
}

/** A path of the caller, made absolute where a session says what it is relative to. */
type Placed = (path: string) => string;

interface Change<Result> extends Asked {
  readonly kind: keyof Routes;
  /** What makes the request what it is, for its idempotency key. */
  readonly request: unknown;
  /** Every path of the request, as the caller gave it. */
  readonly paths: readonly string[];
  /** Whether it may simply be done again, in the same place, after an interruption. */
  readonly isRepeatable: boolean;
  readonly effect: (node: NodeApi, order: FileOrder, placed: Placed) => Promise<Result>;
}

export class Files {
  readonly #context: ControlContext;
  readonly #parts: CallParts;

  constructor(context: ControlContext, parts: CallParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async read(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    wanted: Query<'readFile'> & { readonly offset: number; readonly length: number | null },
    signal: AbortSignal,
  ): Promise<FileContent> {
    const { path, user, session, offset, length } = wanted;
    return await this.#look({ caller, sandboxId, conditions, user, session }, (node, order, placed) =>
      node.readFile({ ...order, path: placed(path), offset, length }, signal),
    );
  }

  async stat(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    query: Query<'statFile'>,
  ): Promise<FileView> {
    const { path, user, session } = query;
    const followLinks = query.followLinks === 'true';
    return viewOfFile(
      await this.#look({ caller, sandboxId, conditions, user, session }, (node, order, placed) =>
        node.fileAction({ ...order, action: { kind: 'stat', path: placed(path), followLinks } }),
      ),
    );
  }

  async list(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    query: Query<'listFiles'>,
  ): Promise<ResultOf<Routes['listFiles']>> {
    const { path, depth, limit, user, session } = query;
    const after = query.cursor === undefined ? null : checkFileCursor(query.cursor);
    const list = await this.#look({ caller, sandboxId, conditions, user, session }, (node, order, placed) =>
      node.fileAction({ ...order, action: { kind: 'list', path: placed(path), depth, limit, after } }),
    );
    return { items: list.entries.map(viewOfFile), nextCursor: list.next };
  }

  async changes(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    query: Query<'listFileChanges'>,
  ): Promise<ResultOf<Routes['listFileChanges']>> {
    const { path, limit, user, session, since = null } = query;
    const asked = { caller, sandboxId, conditions, user, session };
    const { changes, cursor, hasMore } = await this.#look(asked, (node, order, placed) =>
      node.fileChanges({ ...order, path: placed(path), since, limit }),
    );
    return { items: changes.map(viewOfChange), cursor: cursor as Id<'mark'>, hasMore };
  }

  async makeDirectory(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: Body<'makeDirectory'>,
  ): Promise<FileView> {
    const { path, parents, mode, user, session } = body;
    const action = { kind: 'makeDirectory', path, parents, mode: modeOf(mode) } as const;
    const asked = { caller, sandboxId, conditions, user, session };
    return viewOfFile(await this.#act(asked, 'makeDirectory', action, { isRepeatable: parents }));
  }

  async move(caller: Caller, sandboxId: SandboxId, conditions: Conditions, body: Body<'moveFile'>): Promise<FileView> {
    const { user, session, ...rest } = body;
    const asked = { caller, sandboxId, conditions, user, session };
    return viewOfFile(await this.#act(asked, 'moveFile', { kind: 'move', ...rest }, { isRepeatable: false }));
  }

  async copy(caller: Caller, sandboxId: SandboxId, conditions: Conditions, body: Body<'copyFile'>): Promise<FileView> {
    const { user, session, ...rest } = body;
    const asked = { caller, sandboxId, conditions, user, session };
    return viewOfFile(await this.#act(asked, 'copyFile', { kind: 'copy', ...rest }, { isRepeatable: false }));
  }

  async remove(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    query: Query<'removeFile'>,
  ): Promise<void> {
    const action = { kind: 'remove', path: query.path, recursive: query.recursive === 'true' } as const;
    const asked = { caller, sandboxId, conditions, user: query.user, session: query.session };
    await this.#act(asked, 'removeFile', action, { isRepeatable: false });
  }

  async changeAttributes(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: Body<'changeFileAttributes'>,
  ): Promise<FileView> {
    const { path, mode, owner, user, session } = body;
    const action = { kind: 'changeAttributes', path, mode: modeOf(mode), owner: ownerOf(owner) } as const;
    const asked = { caller, sandboxId, conditions, user, session };
    return viewOfFile(await this.#act(asked, 'changeFileAttributes', action, { isRepeatable: true }));
  }

  async labels(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    query: Query<'getFileLabels'>,
  ): Promise<ResultOf<Routes['getFileLabels']>> {
    const { path, user, session } = query;
    const labels = await this.#look({ caller, sandboxId, conditions, user, session }, (node, order, placed) =>
      node.fileAction({ ...order, action: { kind: 'labels', path: placed(path) } }),
    );
    return { labels: { ...labels } };
  }

  async setLabels(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: Body<'setFileLabels'>,
  ): Promise<void> {
    const { user, session, ...rest } = body;
    const asked = { caller, sandboxId, conditions, user, session };
    await this.#act(asked, 'setFileLabels', { kind: 'setLabels', ...rest }, { isRepeatable: true });
  }

  /**
   * Under an idempotency key the content is held whole, to tell whether it is the same in a repeat, and so is limited. A stream without a key
   * needs none where it replaces: sending it again is harmless.
   */
  async write(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    wanted: WriteWanted,
    bytes: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<FileView> {
    const { path, user, session, expected } = wanted;
    const details = {
      path,
      how: wanted.append === 'true' ? 'append' : 'replace',
      mode: modeOf(wanted.mode),
      owner: ownerOf(wanted.owner),
      parents: wanted.parents === 'true',
      expected,
    } as const;
    const content = await holdContent(bytes, conditions);
    const entry = await this.#change({
      ...{ caller, sandboxId, conditions, user, session },
      kind: 'writeFile',
      request: { ...details, digest: content.digest },
      paths: [path],
      isRepeatable: details.how === 'replace' && expected.kind === 'any',
      effect: (node, order, placed) =>
        node.writeFile({ ...order, ...details, path: placed(path) }, content.bytes(), signal),
    });
    return viewOfFile(entry);
  }

  async downloadTree(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    query: Query<'downloadTree'>,
    signal: AbortSignal,
  ): Promise<{ readonly bytes: AsyncIterable<Uint8Array> }> {
    const { path, user, session } = query;
    return await this.#look({ caller, sandboxId, conditions, user, session }, (node, order, placed) =>
      node.readTree({ ...order, path: placed(path) }, signal),
    );
  }

  async uploadTree(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    query: Query<'uploadTree'>,
    tar: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<ResultOf<Routes['uploadTree']>> {
    const { path, user, session } = query;
    const content = await holdContent(tar, conditions);
    return await this.#change({
      ...{ caller, sandboxId, conditions, user, session },
      kind: 'uploadTree',
      request: { path, digest: content.digest },
      paths: [path],
      isRepeatable: true,
      effect: (node, order, placed) => node.writeTree({ ...order, path: placed(path) }, content.bytes(), signal),
    });
  }

  async *watch(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    query: Query<'watchFiles'>,
    signal: AbortSignal,
  ): AsyncGenerator<FileEventView, void> {
    const { user, session, include, exclude } = query;
    const recursive = query.recursive === 'true';
    const asked = { caller, sandboxId, conditions, user, session };
    const { events, path } = await this.#look(asked, async (node, order, placed) => {
      const watched = placed(query.path);
      return { path: watched, events: node.watchFiles({ ...order, path: watched, recursive }, signal) };
    });
    yield* filterEvents(events, { path, include, exclude });
  }

  async #look<Result>(
    asked: Asked,
    ask: (node: NodeApi, order: FileOrder, placed: Placed) => Promise<Result>,
  ): Promise<Result> {
    const record = await this.#parts.records.runningIn(asked.caller, asked.sandboxId, asked.conditions);
    // A look needs no lease, so it brings no token.
    const order = { ...orderOf(record, asked), leaseToken: null };
    return await this.#inPlace(record, asked, order, ask);
  }

  /**
   * A session is only looked at, which does not wait for what runs in it. One that has ended is nowhere; one that cannot tell where it is takes
   * absolute paths.
   */
  async #inPlace<Result>(
    record: SandboxRecord,
    asked: Asked,
    order: FileOrder,
    ask: (node: NodeApi, order: FileOrder, placed: Placed) => Promise<Result>,
  ): Promise<Result> {
    const { session } = asked;
    return await this.#context.nodes.call(record.nodeId, async (node) => {
      if (session === undefined) return await ask(node, order, (path) => path);
      const found = await node.getSession({ sandboxId: record.id, generation: record.generation, session });
      const { cwd, end } = found;
      if (end !== null) throw sessionNowhere(found);
      const placed = (path: string) => {
        if (isAbsolute(path)) return path;
        if (cwd === null) throw sessionNowhere(found);
        // Not normalized: what `..` leads to behind a symlink is for the kernel to say.
        return `${cwd === '/' ? '' : cwd}/${path}`;
      };
      return await ask(node, { ...order, user: order.user ?? found.user }, placed);
    });
  }

  #act<Kind extends FileActionKind>(
    asked: Asked,
    kind: keyof Routes,
    action: Extract<FileAction, { kind: Kind }>,
    options: { readonly isRepeatable: boolean },
  ): Promise<FileAnswers[Kind]> {
    return this.#change({
      ...asked,
      ...options,
      kind,
      request: action,
      paths: 'path' in action ? [action.path] : [action.from, action.to],
      effect: (node, order, placed) => node.fileAction<Kind>({ ...order, action: placedAction(action, placed) }),
    });
  }

  #change<Result>(change: Change<Result>): Promise<Result> {
    const { caller, sandboxId, conditions, kind, user, session, request } = change;
    const effect = () => this.#parts.gate.pass(sandboxId, conditions, () => this.#apply(change));
    return this.#parts.mutations.run({
      caller,
      kind,
      conditions,
      request: { sandboxId, user, session, request },
      about: (tables) => lifeIn(tables, sandboxId),
      effect,
      resume: (operation) => this.#resume(change, operation, effect),
    });
  }

  async #apply<Result>(change: Change<Result>): Promise<Result> {
    const record = await this.#parts.records.openTo(change.caller, change.sandboxId, change.conditions);
    const order = orderOf(record, change);
    return await this.#inPlace(record, change, order, change.effect);
  }

  /**
   * After a crash nobody knows whether it was done: only what may be done twice in the same life is done again. What is relative to a session
   * is not: its shell may be elsewhere by now.
   */
  async #resume<Result>(change: Change<Result>, operation: Operation, effect: () => Promise<Result>): Promise<Result> {
    const record = await this.#parts.records.find(change.sandboxId);
    const isSameLife = record?.teamId === change.caller.teamId && operation.subjectId === lifeOf(record);
    const isSamePlace = change.session === undefined || change.paths.every(isAbsolute);
    if (!change.isRepeatable || !isSameLife || !isSamePlace) throw inDoubt(operation);
    return await effect();
  }
}

function orderOf(record: SandboxRecord, asked: Asked): FileOrder {
  return {
    sandboxId: record.id,
    generation: record.generation,
    user: asked.user ?? null,
    leaseToken: asked.conditions.leaseToken ?? null,
  };
}

function isAbsolute(path: string): boolean {
  return path.startsWith('/');
}

function placedAction<Action extends FileAction>(action: Action, placed: Placed): Action {
  if ('path' in action) return { ...action, path: placed(action.path) };
  return { ...action, from: placed(action.from), to: placed(action.to) };
}
