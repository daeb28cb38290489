/** The calls about workspaces as they stand on HTTP: an order, bytes behind it where some go in, and JSON or bytes as the answer. */
import { z } from 'zod';
import { idSchema, type NodeWorkspaces } from '../../protocol/index.ts';
import { lifeOrder } from '../order-schemas.ts';
import { parseOrder } from './serve-call.ts';

interface WorkspaceCall {
  readonly order: unknown;
  readonly rest: AsyncIterable<Uint8Array>;
  readonly signal: AbortSignal;
}

const objectId = z.string().regex(/^[0-9a-f]{40}$/, 'It is 40 hexadecimal digits.');
const count = z.int().nonnegative();
const author = z.strictObject({ name: z.string(), email: z.string() });
const named = z.strictObject({ workspaceId: idSchema('workspace') });
const ofCommit = named.extend({ commit: objectId });
const between = named.extend({ from: objectId, to: objectId });
const remote = named.extend({
  url: z.string(),
  ref: z.string().nullable(),
  credentials: z.strictObject({ username: z.string(), password: z.string() }).nullable(),
});
const checkout = named.extend({ life: lifeOrder, path: z.string(), base: objectId });
const baseline = z.string().min(1).max(1_000);
const imported = named.extend({
  source: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('bundle'), ref: z.string().nullable() }),
    z.strictObject({ kind: z.literal('archive') }),
  ]),
  author,
  message: z.string(),
  atMs: count,
});
const exported = ofCommit.extend({ kind: z.enum(['bundle', 'archive', 'checkout']), since: z.array(objectId) });
const committed = named.extend({
  tree: objectId,
  parents: z.array(objectId),
  author,
  atMs: count,
  message: z.string(),
  trailers: z.array(z.strictObject({ name: z.string(), value: z.string() })),
});

export const workspaceCalls: Readonly<Record<string, (node: NodeWorkspaces, call: WorkspaceCall) => Promise<unknown>>> =
  {
    createWorkspace: (node, { order }) => node.create(parseOrder(named, order)),
    removeWorkspace: (node, { order }) => node.remove(parseOrder(named, order)),
    listWorkspaces: (node) => node.list(),
    importWorkspaceBytes: (node, { order, rest, signal }) =>
      node.importBytes(parseOrder(imported, order), rest, signal),
    importWorkspaceRemote: (node, { order, signal }) => node.importRemote(parseOrder(remote, order), signal),
    pushWorkspaceRemote: (node, { order, signal }) =>
      node.pushRemote(parseOrder(remote.extend({ commit: objectId }), order), signal),
    exportWorkspace: (node, { order, signal }) => node.exportBytes(parseOrder(exported, order), signal),
    getWorkspaceCommit: (node, { order }) => node.getCommit(parseOrder(ofCommit, order)),
    listWorkspaceCommits: (node, { order }) => node.log(parseOrder(ofCommit.extend({ limit: count }), order)),
    diffWorkspace: (node, { order }) => node.diff(parseOrder(between.extend({ limit: count }), order)),
    patchWorkspace: (node, { order, signal }) => node.patch(parseOrder(between, order), signal),
    readWorkspaceBlob: (node, { order, signal }) =>
      node.readBlob(parseOrder(named.extend({ blob: objectId }), order), signal),
    recordWorkspaceBaseline: (node, { order }) => node.recordBaseline(parseOrder(checkout.extend({ baseline }), order)),
    forgetWorkspaceBaseline: (node, { order }) => node.forgetBaseline(parseOrder(named.extend({ baseline }), order)),
    collectWorkspace: (node, { order, signal }) =>
      node.collect(parseOrder(checkout.extend({ baseline: baseline.nullable() }), order), signal),
    commitWorkspaceTree: (node, { order }) => node.commitTree(parseOrder(committed, order)),
    mergeWorkspace: (node, { order, signal }) =>
      node.merge(parseOrder(named.extend({ base: objectId, ours: objectId, theirs: objectId }), order), signal),
    holdWorkspaceObject: (node, { order }) =>
      node.hold(parseOrder(named.extend({ name: z.string(), object: objectId }), order)),
    releaseWorkspaceHolds: (node, { order }) =>
      node.release(parseOrder(named.extend({ names: z.array(z.string()) }), order)),
    listWorkspaceHolds: (node, { order }) => node.holds(parseOrder(named, order)),
    tidyWorkspace: (node, { order }) => node.tidy(parseOrder(named.extend({ olderThanMs: count }), order)),
  };

const byteCalls: ReadonlySet<string> = new Set(['exportWorkspace', 'patchWorkspace', 'readWorkspaceBlob']);

export function answersWithBytes(method: string, _result: unknown): _result is { bytes: AsyncIterable<Uint8Array> } {
  return byteCalls.has(method);
}
