/**
 * Makes the checkout in the sandbox equal to the one here: commits, branch, what is staged, the working tree. What the sandbox has already is not
 * sent; what somebody did there and nobody has seen here is pulled first.
 */
import { readFile, rm } from 'node:fs/promises';
import type { Sandbox } from '../../sdk/index.ts';
import { recoverApply } from './apply.ts';
import { type Checkout, refused } from './checkout.ts';
import { withCheckoutLock } from './checkout-lock.ts';
import { settleConflicts } from './conflicts.ts';
import { isObjectLost, nameText } from './git-process.ts';
import { limitsOf } from './limits.ts';
import { commitTree, emptyTree, forgetSnapshot, type Snapshot, takeSnapshot } from './local-snapshot.ts';
import type { PullResult, PushOptions, PushResult } from './options.ts';
import { makePack, objectsIn } from './packs.ts';
import { pullLocked } from './pull.ts';
import { readRecord, type SyncRecord, writeRecord } from './records.ts';
import { lookScript, probeScript, pushScript } from './sandbox-scripts.ts';
import {
  inlinePackBytes,
  objectField,
  objectOrNone,
  refusalOf,
  type SandboxAnswer,
  SandboxSide,
} from './sandbox-side.ts';
import { tidyShadow } from './shadow-size.ts';
import { shallowBoundaries } from './shallow.ts';
import { changesBetween, knownCommits, limitedTree } from './trees.ts';

/** A push tries again when the sandbox was changed under it, but not for ever. */
const attempts = 3;

export function push(checkout: Checkout, sandbox: Sandbox, options: PushOptions = {}): Promise<PushResult> {
  return withCheckoutLock(checkout, options.signal, () => pushLocked(checkout, sandbox, options)).finally(() =>
    options.onProgress?.({ phase: 'done', files: 0, bytes: 0 }),
  );
}

async function pushLocked(checkout: Checkout, sandbox: Sandbox, options: PushOptions): Promise<PushResult> {
  const recovered = await recoverApply(checkout);
  const side = new SandboxSide(sandbox, checkout, options);
  const warnings = [...(recovered?.warnings ?? [])];
  let given: Given = { warnings, pulledFirst: null, isStale: false };
  let isForgotten = false;
  for (let attempt = 1; ; attempt++) {
    const outcome = await tryPush(checkout, side, { sandboxId: sandbox.id, options, given }).catch(async (error) => {
      if (isForgotten || !isObjectLost(error)) throw error;
      // What was remembered names objects that are gone. It is learnt anew, from the files and from the sandbox.
      isForgotten = true;
      await forgetSnapshot(checkout);
      return 'stale' as const;
    });
    if (typeof outcome !== 'string') return outcome;
    if (attempt >= attempts) throw refusalOf(outcome);
    if (outcome === 'stale') given = { ...given, isStale: true };
    else if (outcome !== 'unpulled') throw refusalOf(outcome);
    else {
      const { paths: _, ...rest } = options;
      given = { warnings, pulledFirst: await pullLocked(checkout, sandbox, rest), isStale: false };
    }
  }
}

/** What earlier attempts have found out. */
interface Given {
  readonly warnings: readonly string[];
  readonly pulledFirst: PullResult | null;
  /** The record of the sandbox is not to be believed. */
  readonly isStale: boolean;
}

/** Answers what the sandbox refuses with as a text. */
async function tryPush(
  checkout: Checkout,
  side: SandboxSide,
  call: { readonly sandboxId: string; readonly options: PushOptions; readonly given: Given },
): Promise<PushResult | string> {
  const { sandboxId, options, given } = call;
  const record = given.isStale ? undefined : await readRecord(checkout, sandboxId);
  const { snapshot, known, looked } = await bothStates(checkout, side, { record, options });
  if (looked?.error !== undefined && looked.error !== 'interrupted') return looked.error;
  const target = await limited(checkout, snapshot, known.tree, options);
  refuseSuddenlyEmpty(known, target, options);
  const changing = changesBetween(checkout, known.tree ?? emptyTree, target.tree);
  const leftovers = await settleConflicts(checkout, snapshot.tree);
  const unresolved = leftovers.map((folder) => `An earlier conflict is not resolved yet: ${folder}`);
  const warnings = [...given.warnings, ...snapshot.warnings, ...unresolved];
  const resultOf = async () => {
    const paths = (await changing).map(({ name }) => nameText(name));
    return { head: snapshot.head, files: paths.length, paths, warnings, pulledFirst: given.pulledFirst };
  };
  if (options.dryRun) {
    return { ...(await resultOf()), baseline: target.commit, bytes: 0, applied: false, healed: false };
  }
  const found = looked?.error === undefined ? looked : undefined;
  const isSeen =
    record !== undefined &&
    found?.fields.get('tree') === record.seenTree &&
    found.fields.get('head') === (record.seenHead ?? 'none');
  if (found !== undefined && !isSeen && options.unpulled !== 'discard') return await afterwards(changing, 'unpulled');
  // What was pulled since and is here no more, after an undo say, is to go there too.
  const isAsPushed = isSeen && record.seenTree === record.baseTree && record.seenHead === record.head;
  if (isAsPushed && target.commit === known.pushed) {
    return { ...(await resultOf()), baseline: target.commit, bytes: 0, applied: false, healed: false };
  }
  const [result, { answer, bytes }] = await Promise.all([
    resultOf(),
    send(checkout, side, { target, known, options, changing, looked: found?.fields.get('tree') }),
  ]);
  if (answer.error !== undefined) return answer.error;
  await writeRecord(checkout, sandboxId, recordOf(target, answer));
  await tidyShadow(checkout);
  const isOn = (field: string) => answer.fields.get(field) === '1';
  return { ...result, baseline: target.commit, bytes, applied: isOn('applied'), healed: isOn('healed') };
}

async function afterwards<Result>(work: Promise<unknown>, result: Result): Promise<Result> {
  await work;
  return result;
}

/**
 * What is here, and what is there. With a record both are looked at at the same time; without one nothing is asked of the sandbox before what is here
 * is known to be fit to be sent.
 */
async function bothStates(
  checkout: Checkout,
  side: SandboxSide,
  { record, options }: { readonly record: SyncRecord | undefined; readonly options: PushOptions },
): Promise<{ readonly snapshot: Snapshot; readonly known: Known; readonly looked: SandboxAnswer | undefined }> {
  if (record === undefined || options.dryRun) {
    const snapshot = await localState(checkout, options);
    return { snapshot, known: await whatSandboxHas(checkout, side, record), looked: undefined };
  }
  // Each ends before this does: nothing of ours may go on in the shadow when its lock is given back.
  const [snapshot, known, looked] = await Promise.allSettled([
    localState(checkout, options),
    whatSandboxHas(checkout, side, record),
    side.run(lookScript, [checkout.excludes, record.pushed]),
  ]);
  if (snapshot.status === 'rejected') throw snapshot.reason;
  if (known.status === 'rejected') throw known.reason;
  if (looked.status === 'rejected') throw looked.reason;
  return { snapshot: snapshot.value, known: known.value, looked: looked.value };
}

function localState(checkout: Checkout, options: PushOptions): Promise<Snapshot> {
  return takeSnapshot(checkout, {
    limits: limitsOf(options.limits),
    secretsPolicy: options.secretsPolicy ?? 'skip',
    onFiles: (files, bytes) => options.onProgress?.({ phase: 'snapshot', files, bytes }),
  });
}

/** What a push builds on. `pushed`: null for a sandbox that has never been synced. */
interface Known {
  readonly record: SyncRecord | undefined;
  readonly pushed: string | null;
  /** What its working tree was when it was last seen, as far as that is here. */
  readonly tree: string | undefined;
  readonly commits: readonly string[];
}

/** A record of ours is believed at first: the script in the sandbox checks it, and says so when it is another's turn. */
async function whatSandboxHas(checkout: Checkout, side: SandboxSide, record: SyncRecord | undefined): Promise<Known> {
  const ours = record === undefined ? [] : await knownCommits(checkout, [record.pushed, record.base, record.seen]);
  if (record !== undefined && ours.includes(record.pushed)) {
    const tree = record.seen === record.base ? record.pushedTree : record.seenTree;
    return { record, pushed: record.pushed, tree, commits: ours };
  }
  const answer = await side.run(probeScript, []);
  if (answer.error === 'fresh' || answer.error === 'lost-git') {
    return { record: undefined, pushed: null, tree: undefined, commits: [] };
  }
  if (answer.error !== undefined) throw refusalOf(answer.error);
  const commits = await knownCommits(checkout, answer.haves);
  return { record: undefined, pushed: objectOrNone(answer, 'pushed'), tree: undefined, commits };
}

async function limited(
  checkout: Checkout,
  snapshot: Snapshot,
  base: string | undefined,
  options: PushOptions,
): Promise<Snapshot> {
  if (options.paths === undefined) return snapshot;
  const tree = await limitedTree(checkout, base ?? emptyTree, snapshot.tree, options.paths);
  return tree === snapshot.tree
    ? snapshot
    : { ...snapshot, tree, commit: await commitTree(checkout, tree, [snapshot.commit]) };
}

function refuseSuddenlyEmpty(known: Known, target: Snapshot, options: PushOptions): void {
  if (target.tree !== emptyTree || known.tree === undefined || known.tree === emptyTree || options.allowEmpty) return;
  throw refused(
    'The checkout here is suddenly empty, and the one in the sandbox is not. If that is meant, allow it; else look for your files first.',
  );
}

interface Sending {
  readonly target: Snapshot;
  readonly known: Known;
  readonly options: PushOptions;
  readonly changing: Promise<readonly unknown[]>;
  /** The tree that the sandbox has right now. */
  readonly looked: string | undefined;
}

/** From so many on the sandbox's index is written once more, later. */
const manyChanges = 200;

async function send(
  checkout: Checkout,
  side: SandboxSide,
  { target, known, options, changing, looked }: Sending,
): Promise<{ answer: SandboxAnswer; bytes: number }> {
  const { record } = known;
  const [pack, changes, boundaries] = await Promise.all([
    target.commit === known.pushed ? undefined : makePack(checkout, { wanted: [target.commit], known: known.commits }),
    changing,
    shallowBoundaries(checkout),
  ]);
  const report = (bytes: number) => options.onProgress?.({ phase: 'send', files: changes.length, bytes });
  const words = [
    checkout.excludes,
    target.commit,
    target.tree,
    target.head ?? 'none',
    target.branch ?? 'detached',
    target.indexTree ?? 'none',
    known.pushed ?? 'none',
    record?.seenTree ?? 'none',
    record === undefined ? 'none' : (record.seenHead ?? 'none'),
    options.unpulled === 'discard' ? 'force' : 'ask',
    boundaries ?? 'none',
    looked ?? 'none',
    changes.length > manyChanges ? '1' : '0',
  ];
  if (pack === undefined) return { answer: await side.run(pushScript, [...words, '-', '0']), bytes: 0 };
  const objects = String(await objectsIn(pack));
  try {
    report(0);
    if (pack.bytes > limitsOf(options.limits).totalBytes) {
      throw refused(
        `The pack is ${pack.bytes} bytes, more than one sync carries. Raise the limit, or work in a shallow clone.`,
      );
    }
    if (pack.bytes > inlinePackBytes) {
      const path = await side.upload(pack.path, report);
      return { answer: await side.run(pushScript, [...words, path, objects]), bytes: pack.bytes };
    }
    const answer = await side.run(pushScript, [...words, '-', objects], await readFile(pack.path));
    report(pack.bytes);
    return { answer, bytes: pack.bytes };
  } finally {
    await rm(pack.path, { force: true });
  }
}

function recordOf(target: Snapshot, answer: SandboxAnswer): SyncRecord {
  const base = objectField(answer, 'base');
  const baseTree = objectField(answer, 'tree');
  const { head, indexTree, commit, tree } = target;
  return {
    version: 1,
    pushed: commit,
    pushedTree: tree,
    head,
    indexTree,
    base,
    baseTree,
    seen: base,
    seenTree: baseTree,
    seenHead: head,
  };
}
