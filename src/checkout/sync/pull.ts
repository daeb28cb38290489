/**
 * Brings here what happened in the sandbox since the base that both sides agreed on: file changes, merged with those made here meanwhile, and
 * commits as commits. Everything is prepared first; then it is applied whole, or nothing is and the sandbox's side lies on a ref and in a folder.
 */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isPlatformError, PlatformError } from '../../protocol/index.ts';
import type { Sandbox } from '../../sdk/index.ts';
import { type Applied, applyChanges, recoverApply } from './apply.ts';
import { commitsRef, setRef } from './branch-move.ts';
import { type Checkout, refused, shadowCall } from './checkout.ts';
import { withCheckoutLock } from './checkout-lock.ts';
import { keepConflict, settleConflicts } from './conflicts.ts';
import { gitLine, isObjectLost, nameText } from './git-process.ts';
import { checkHostileChanges } from './hostile-tree.ts';
import { limitsOf } from './limits.ts';
import { localHead } from './local-head.ts';
import { emptyTree, forgetSnapshot, type Snapshot, takeSnapshot } from './local-snapshot.ts';
import type { PullOptions, PullResult } from './options.ts';
import { takePack } from './packs.ts';
import { mergeTrees, type PullConflict } from './pull-merge.ts';
import { planCommits } from './pulled-commits.ts';
import { readRecord, type SyncRecord, writeRecord } from './records.ts';
import { pullScript } from './sandbox-scripts.ts';
import {
  inlinePackBytes,
  objectField,
  objectOrNone,
  refusalOf,
  type SandboxAnswer,
  SandboxSide,
} from './sandbox-side.ts';
import { tidyShadow } from './shadow-size.ts';
import { changesBetween, limitedTree } from './trees.ts';
import type { UndoRecord } from './undo-record.ts';

export const nothingPulled: PullResult = {
  applied: false,
  files: 0,
  bytes: 0,
  paths: [],
  commits: [],
  branchMoved: false,
  conflicts: [],
  ref: null,
  folder: null,
  warnings: [],
};

const nothingApplied: Applied = { conflicts: [], isBranchMoved: false, warnings: [] };

/** What arrived, checked as far as its own form goes. */
export interface Arrived {
  readonly base: string;
  readonly baseTree: string;
  readonly commit: string;
  readonly tree: string;
  readonly head: string | null;
  readonly branch: string | null;
  readonly indexTree: string | null;
}

export function pull(checkout: Checkout, sandbox: Sandbox, options: PullOptions = {}): Promise<PullResult> {
  return withCheckoutLock(checkout, options.signal, () => pullLocked(checkout, sandbox, options)).finally(() =>
    options.onProgress?.({ phase: 'done', files: 0, bytes: 0 }),
  );
}

/** The caller holds the checkout's lock. */
export async function pullLocked(checkout: Checkout, sandbox: Sandbox, options: PullOptions): Promise<PullResult> {
  const recovered = await recoverApply(checkout);
  const warnings = [...(recovered?.warnings ?? [])];
  const side = new SandboxSide(sandbox, checkout, options);
  const record = await readRecord(checkout, sandbox.id);
  try {
    return await tryPull(checkout, side, { sandboxId: sandbox.id, record, options, warnings });
  } catch (error) {
    if (!isObjectLost(error)) throw error;
    // What was remembered names objects that are gone. The sandbox has what it builds on, and sends it too.
    await forgetSnapshot(checkout);
    return await tryPull(checkout, side, { sandboxId: sandbox.id, record: undefined, options, warnings });
  }
}

interface Pulling {
  readonly sandboxId: string;
  readonly record: SyncRecord | undefined;
  readonly options: PullOptions;
  readonly warnings: readonly string[];
}

async function tryPull(checkout: Checkout, side: SandboxSide, given: Pulling): Promise<PullResult> {
  const { options, warnings } = given;
  let { record } = given;
  let answer = await ask(checkout, side, record);
  if (answer.error === 'stale') {
    record = undefined;
    answer = await ask(checkout, side, record);
  }
  if (answer.error !== undefined) throw refusalOf(answer.error);
  if (answer.fields.get('same') === 'yes') return { ...nothingPulled, warnings };
  const discard = await receivePack(checkout, side, answer, options);
  try {
    const arrived = await arrivedOf(checkout, answer, record);
    return await settle(checkout, { ...given, record, arrived });
  } catch (error) {
    if (isPlatformError(error, 'sync_unsafe', 'sync_limit_exceeded')) await discard();
    throw error;
  }
}

async function ask(checkout: Checkout, side: SandboxSide, record: SyncRecord | undefined): Promise<SandboxAnswer> {
  const head = record === undefined ? (await localHead(checkout)).head : null;
  const haves = [record?.pushed, record?.seen === record?.base ? undefined : record?.seen, head].filter(
    (id) => id != null,
  );
  const seen = [
    record?.base ?? 'none',
    record?.seenTree ?? 'none',
    record === undefined ? 'none' : (record.seenHead ?? 'none'),
  ];
  return await side.run(pullScript, [...seen, String(inlinePackBytes), ...haves]);
}

/** The answer removes it again. */
async function receivePack(
  checkout: Checkout,
  side: SandboxSide,
  answer: SandboxAnswer,
  options: PullOptions,
): Promise<() => Promise<void>> {
  const bytes = Number(answer.fields.get('bytes'));
  const limits = limitsOf(options.limits);
  if (!Number.isSafeInteger(bytes) || bytes < 0)
    throw new PlatformError('sync_failed', 'The sandbox gave no good size.');
  if (bytes > limits.totalBytes) {
    throw new PlatformError(
      'sync_limit_exceeded',
      `The sandbox would send ${bytes} bytes; the limit is ${limits.totalBytes}.`,
      { details: { bytes } },
    );
  }
  const report = (got: number) => options.onProgress?.({ phase: 'receive', files: 0, bytes: got });
  const path = join(checkout.directory, 'pack.in');
  try {
    if (bytes > inlinePackBytes) await side.download(path, bytes, report);
    else if (answer.data.byteLength !== bytes)
      throw new PlatformError('sync_failed', 'The pack from the sandbox is not whole.');
    else await writeFile(path, answer.data, { mode: 0o600 });
    report(bytes);
    return await takePack(checkout, { path, bytes }, { limits, ...(options.signal && { signal: options.signal }) });
  } finally {
    await rm(path, { force: true });
  }
}

async function arrivedOf(checkout: Checkout, answer: SandboxAnswer, record: SyncRecord | undefined): Promise<Arrived> {
  const arrived = {
    base: objectField(answer, 'base'),
    commit: objectField(answer, 'snapshot'),
    tree: objectField(answer, 'tree'),
    head: objectOrNone(answer, 'head'),
    branch: answer.fields.get('branch') === 'detached' ? null : (answer.fields.get('branch') ?? null),
    indexTree: objectOrNone(answer, 'index'),
  };
  const asked = [`${arrived.commit}^@`, `${arrived.commit}^{tree}`, `${arrived.base}^{tree}`];
  const found = (await gitLine(['rev-parse', ...asked], shadowCall(checkout))).split('\n');
  const [parent, tree, baseTree] = found as [string, string, string];
  if (found.length !== asked.length || parent !== arrived.base || tree !== arrived.tree) {
    throw new PlatformError('sync_unsafe', 'What the sandbox sent does not fit together.');
  }
  if (record !== undefined && baseTree !== record.baseTree)
    throw new PlatformError('sync_unsafe', 'The sandbox gave another base.');
  return { ...arrived, baseTree };
}

interface Settling extends Pulling {
  readonly arrived: Arrived;
}

async function settle(
  checkout: Checkout,
  { sandboxId, arrived, record, options, warnings }: Settling,
): Promise<PullResult> {
  const limits = limitsOf(options.limits);
  if (arrived.tree === emptyTree && arrived.baseTree !== emptyTree && !options.allowEmpty) {
    throw refused(
      'The checkout in the sandbox is suddenly empty. If that is meant, allow it; nothing was removed here.',
    );
  }
  // What was brought here earlier is not brought again: the base of the merge is the newest snapshot that this side has seen.
  const baseTree = record?.seenTree ?? arrived.baseTree;
  const theirs = await limitedTree(checkout, baseTree, arrived.tree, options.paths);
  const asked = await checkHostileChanges(checkout, await changesBetween(checkout, baseTree, theirs), limits);
  const snapshot = await takeSnapshot(checkout, {
    limits,
    secretsPolicy: options.secretsPolicy === 'send' ? 'send' : 'skip',
  });
  const merged = await mergeTrees(checkout, { base: baseTree, ours: snapshot.tree, theirs });
  const {
    changes,
    bytes,
    warnings: more,
  } = await checkHostileChanges(checkout, await changesBetween(checkout, snapshot.tree, merged.tree), limits);
  const canMove = merged.conflicts.length === 0 && options.paths === undefined;
  const plan = await planCommits(checkout, { snapshot, arrived, record, canMove, isDry: options.dryRun ?? false });
  const paths = asked.changes.map(({ name }) => nameText(name));
  const all = [...warnings, ...more, ...snapshot.warnings];
  const result = { files: changes.length, bytes, paths, commits: plan.commits, warnings: all };
  if (options.dryRun) {
    return { ...nothingPulled, ...result, conflicts: merged.conflicts };
  }
  const next = recordAfter(arrived, record, { theirs, snapshot });
  const undo: UndoRecord = {
    version: 1,
    kind: 'pull',
    sandboxId,
    before: snapshot.tree,
    changes,
    branch: plan.move,
  };
  const isNothing = merged.conflicts.length > 0 || (changes.length === 0 && plan.move === null);
  const finish = { sync: { sandboxId, record: next }, branch: plan.move, undo };
  const onStep = (files: number) => options.onProgress?.({ phase: 'apply', files, bytes });
  const applied = isNothing ? nothingApplied : await applyChanges(checkout, changes, finish, onStep);
  const conflicts = [...merged.conflicts, ...applied.conflicts];
  const told = { ...nothingPulled, ...result, warnings: [...all, ...applied.warnings], conflicts };
  if (conflicts.length > 0) {
    const { changes: sent } = asked;
    const kept = await keep(checkout, {
      sandboxId,
      arrived,
      conflicts,
      changes: sent,
      mergedTree: merged.tree,
      snapshot,
    });
    if (plan.move?.to != null) await setRef(checkout, commitsRef(plan.move.to), plan.move.to);
    await writeRecord(checkout, sandboxId, next);
    return { ...told, files: 0, bytes: 0, ...kept };
  }
  if (isNothing) await writeRecord(checkout, sandboxId, next);
  await settleConflicts(checkout, merged.tree);
  await tidyShadow(checkout);
  return { ...told, applied: !isNothing, branchMoved: applied.isBranchMoved, ref: plan.ref };
}

function keep(
  checkout: Checkout,
  given: {
    readonly sandboxId: string;
    readonly arrived: Arrived;
    readonly conflicts: readonly PullConflict[];
    readonly changes: Parameters<typeof keepConflict>[1]['changes'];
    readonly mergedTree: string;
    readonly snapshot: Snapshot;
  },
) {
  const { arrived, snapshot, ...rest } = given;
  return keepConflict(checkout, { ...rest, commit: arrived.commit, head: snapshot.head });
}

/** With a filter on paths only what it let through counts as seen. */
function recordAfter(
  arrived: Arrived,
  record: SyncRecord | undefined,
  { theirs, snapshot }: { readonly theirs: string; readonly snapshot: Snapshot },
): SyncRecord {
  const isWhole = theirs === arrived.tree;
  return {
    version: 1,
    pushed: record?.pushed ?? arrived.base,
    pushedTree: record?.pushedTree ?? arrived.baseTree,
    head: record?.head ?? snapshot.head,
    indexTree: record?.indexTree ?? null,
    base: arrived.base,
    baseTree: arrived.baseTree,
    seen: arrived.commit,
    seenTree: theirs,
    seenHead: isWhole ? arrived.head : (record?.seenHead ?? null),
  };
}
