/** The calls about workspaces to a node in another process. What only makes objects that nothing names has changed nothing when its answer is lost. */
import type { NodeWorkspaces } from '../../protocol/index.ts';
import { type ByteCall, type ByteCalls, ResponseBytes } from './byte-calls.ts';

export function workspaceClient(calls: ByteCalls): NodeWorkspaces {
  const ask = <Result>(method: string, order: unknown, more: Partial<ByteCall> = {}): Promise<Result> =>
    calls.json({ method, order, asksOnly: true, ...more });
  const change = <Result>(method: string, order: unknown, more: Partial<ByteCall> = {}): Promise<Result> =>
    calls.json({ method, order, asksOnly: false, ...more });
  const read = async (method: string, order: unknown, signal?: AbortSignal) => {
    const response = await calls.send({ method, order, asksOnly: true, signal });
    return { bytes: new ResponseBytes(response) };
  };
  return {
    create: (order) => change('createWorkspace', order),
    remove: (order) => change('removeWorkspace', order),
    list: () => ask('listWorkspaces', {}),
    importBytes: (order, bytes, signal) => ask('importWorkspaceBytes', order, { bytes, signal }),
    importRemote: (order, signal) => ask('importWorkspaceRemote', order, { signal }),
    pushRemote: (order, signal) => change('pushWorkspaceRemote', order, { signal }),
    exportBytes: (order, signal) => read('exportWorkspace', order, signal),
    getCommit: (order) => ask('getWorkspaceCommit', order),
    log: (order) => ask('listWorkspaceCommits', order),
    diff: (order) => ask('diffWorkspace', order),
    patch: (order, signal) => read('patchWorkspace', order, signal),
    readBlob: (order, signal) => read('readWorkspaceBlob', order, signal),
    recordBaseline: (order) => ask('recordWorkspaceBaseline', order),
    forgetBaseline: (order) => change('forgetWorkspaceBaseline', order),
    collect: (order, signal) => ask('collectWorkspace', order, { signal }),
    commitTree: (order) => ask('commitWorkspaceTree', order),
    merge: (order, signal) => ask('mergeWorkspace', order, { signal }),
    hold: (order) => change('holdWorkspaceObject', order),
    release: (order) => change('releaseWorkspaceHolds', order),
    holds: (order) => ask('listWorkspaceHolds', order),
    tidy: (order) => change('tidyWorkspace', order),
  };
}
