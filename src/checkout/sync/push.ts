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
import { nameText } from './git-process.ts';
import { limitsOf } from './limits.ts';
import { commitTree, emptyTree, type Snapshot, takeSnapshot } from './local-snapshot.ts';
import type { PullResult, PushOptions, PushResult } from './options.ts';
import { makePack } from './packs.ts';
import { pullLocked } from './pull.ts';
import { readRecord, type SyncRecord, writeRecord } from './records.ts';
import { probeScript, pushScript } from './sandbox-scripts.ts';
import {
  inlinePackBytes,
  objectField,
  objectOrNone,
  refusalOf,
  type SandboxAnswer,
  SandboxSide,
} from './sandbox-side.ts';
import { shallowBoundaries } from './shallow.ts';
import { changesBetween, knownCommits, limitedTree } from './trees.ts';

/** A push tries again when the sandbox was changed under it, but not for ever. */
const attempts = 3;

export function push(checkout: Checkout, sandbox: Sandbox, options: PushOptions = {}): Promise<PushResult> {
  return withCheckoutLock(checkout, options.signal, () => pushLocked(checkout, sandbox, options));
}

async function pushLocked(checkout: Checkout, sandbox: Sandbox, options: PushOptions): Promise<PushResult> {
  const recovered = await recoverApply(checkout);
  const side = new SandboxSide(sandbox, checkout, options);
  let pulledFirst: PullResult | null = null;
  let isStale = false;
  for (let attempt = 1; ; attempt++) {
    const snapshot = await localState(checkout, options);
    const record = isStale ? undefined : await readRecord(checkout, sandbox.id);
    const known = await whatSandboxHas(checkout, side, record);
    const target = await limited(checkout, snapshot, known.tree, options);
    refuseSuddenlyEmpty(known, target, options);
    const changes = await changesBetween(checkout, known.tree ?? emptyTree, target.tree);
    const paths = changes.map(({ name }) => nameText(name));
    const leftovers = await settleConflicts(checkout, snapshot.tree);
    const warnings = [
      ...(recovered?.warnings ?? []),
      ...snapshot.warnings,
      ...leftovers.map((folder) => `An earlier conflict is not resolved yet: ${folder}`),
    ];
    const result = { head: snapshot.head, files: paths.length, paths, warnings, pulledFirst };
    if (options.dryRun) return { ...result, baseline: target.commit, bytes: 0, applied: false, healed: false };
    const { answer, bytes } = await send(checkout, side, { target, known, options });
    if (answer.error === undefined) {
      await writeRecord(checkout, sandbox.id, recordOf(target, answer));
      const isOn = (field: string) => answer.fields.get(field) === '1';
      return { ...result, baseline: target.commit, bytes, applied: isOn('applied'), healed: isOn('healed') };
    }
    if (attempt >= attempts) throw refusalOf(answer.error);
    if (answer.error === 'stale') isStale = true;
    else if (answer.error !== 'unpulled') throw refusalOf(answer.error);
    else {
      const { paths: _, ...rest } = options;
      pulledFirst = await pullLocked(checkout, sandbox, rest);
      isStale = false;
    }
  }
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
}

async function send(
  checkout: Checkout,
  side: SandboxSide,
  { target, known, options }: Sending,
): Promise<{ answer: SandboxAnswer; bytes: number }> {
  const { record } = known;
  const isThere = target.commit === known.pushed;
  const report = (bytes: number) => options.onProgress?.({ phase: 'send', files: 0, bytes });
  const pack = isThere
    ? undefined
    : await makePack(checkout, { wanted: [target.commit], known: known.commits }, report);
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
    (await shallowBoundaries(checkout)) ?? 'none',
  ];
  if (pack === undefined) return { answer: await side.run(pushScript, [...words, '-']), bytes: 0 };
  if (pack.bytes > limitsOf(options.limits).totalBytes) {
    throw refused(
      `The pack is ${pack.bytes} bytes, more than one sync carries. Raise the limit, or work in a shallow clone.`,
    );
  }
  if (pack.bytes > inlinePackBytes) {
    const path = await side.upload(pack.path);
    return { answer: await side.run(pushScript, [...words, path]), bytes: pack.bytes };
  }
  const data = await readFile(pack.path);
  await rm(pack.path, { force: true });
  return { answer: await side.run(pushScript, [...words, '-'], data), bytes: pack.bytes };
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
