/**
 * The files of a checkout in a sandbox as a tree. What runs there is hostile, and nothing should move while this looks: so every file that is read
 * is what the list said before and after, and everything is as it was when all of them have been read, or the order is refused and can be repeated.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type Clock, type FaultPoints, KeyedMutex, nameText } from '../../base/index.ts';
import {
  buildTree,
  type FileMode,
  filesOf,
  type GitProgram,
  isSafePath,
  oneChunk,
  type Staging,
  type TreeFile,
  type TreeStep,
  treeOf,
  unsafe,
  type WorkspaceLimits,
} from '../../layers/index.ts';
import { type CollectOrder, PlatformError, type WorkspaceId } from '../../protocol/index.ts';
import { Baseline } from './baseline.ts';
import type { CheckoutEntry, CheckoutFiles, FindCheckout } from './checkout-files.ts';
import { ignoredPaths } from './ignored-paths.ts';
import { nestedRepositories } from './nested-repositories.ts';

const leftOutMax = 100;
/** Two changes within one tick of the kernel's clock leave the same times. Ticks have at most 10 ms; the rest is for a clock that is being adjusted. */
const tickMs = 100;

export interface CollectorOptions {
  readonly git: GitProgram;
  readonly limits: WorkspaceLimits;
  readonly clock: Clock;
  readonly faults: FaultPoints;
  readonly findCheckout: FindCheckout;
  readonly baselinesOf: (id: WorkspaceId) => string;
}

interface Found {
  /** What becomes part of the tree: files and links. */
  readonly kept: readonly CheckoutEntry[];
  readonly leftOut: readonly string[];
}

export class CheckoutCollector {
  readonly #options: CollectorOptions;
  /** Guards one baseline's file. Nothing is taken inside. */
  readonly #baselineLock = new KeyedMutex<string>({ name: 'baseline file', rank: 4 });

  constructor(options: CollectorOptions) {
    this.#options = options;
  }

  async recordBaseline(order: CollectOrder & { readonly baseline: string }, repository: string): Promise<void> {
    const { git, limits, clock, findCheckout, baselinesOf } = this.#options;
    const files = new Map<string, TreeFile>();
    for await (const file of filesOf(git, repository, await treeOf(git, repository, order.base), limits)) {
      files.set(file.path, file);
    }
    const checkout = findCheckout(order.life, order.path);
    const isSettled = ({ changedNs }: CheckoutEntry) => changedNs < BigInt(clock.nowMs() - tickMs) * 1_000_000n;
    let entries = await checkout.list(limits.collectEntries);
    if (!entries.every(isSettled)) {
      // What changes within the tick of the kernel's clock in which it was looked at would look the same; so it is looked at after that.
      await delay(2 * tickMs);
      entries = await checkout.list(limits.collectEntries);
    }
    const same = entries.filter((entry) => {
      const file = files.get(entry.path);
      return file !== undefined && looksLike(entry, file) && isSettled(entry);
    });
    const baseline = Baseline.of(order.base, same);
    await this.#baselineLock.run(order.baseline, () => baseline.save(baselinesOf(order.workspaceId), order.baseline));
  }

  async forgetBaseline(order: { readonly workspaceId: WorkspaceId; readonly baseline: string }): Promise<void> {
    const directory = this.#options.baselinesOf(order.workspaceId);
    await this.#baselineLock.run(order.baseline, () => Baseline.forget(directory, order.baseline));
  }

  /** The tree, in the staging. */
  async collect(
    order: CollectOrder,
    staging: Staging,
    signal?: AbortSignal,
  ): Promise<{ readonly tree: string; readonly leftOut: readonly string[] }> {
    const { git, limits, faults, findCheckout, baselinesOf } = this.#options;
    const base = await treeOf(git, staging.path, order.base);
    const before = new Map<string, TreeFile>();
    for await (const file of filesOf(git, staging.path, base, limits, signal)) before.set(file.path, file);
    const checkout = findCheckout(order.life, order.path);
    const entries = await checkout.list(limits.collectEntries, signal);
    const { kept, leftOut } = await this.#select(entries, { before, base, staging, signal });
    this.#checkAmount(kept);
    await faults.hit('workspace-collect-listed');
    const baseline =
      order.baseline === null
        ? Baseline.none
        : await Baseline.load(baselinesOf(order.workspaceId), order.baseline, order.base);
    const steps = stepsOf({ kept, before, baseline, checkout, signal });
    const tree = await buildTree(git, staging, { base, steps, limits, signal });
    await faults.hit('workspace-collect-read');
    requireUnmoved(entries, await checkout.list(limits.collectEntries, signal));
    return { tree, leftOut };
  }

  async #select(
    entries: readonly CheckoutEntry[],
    given: {
      readonly before: ReadonlyMap<string, TreeFile>;
      readonly base: string;
      readonly staging: Staging;
      readonly signal: AbortSignal | undefined;
    },
  ): Promise<Found> {
    const { before, base, staging, signal } = given;
    const { git, limits } = this.#options;
    const leftOut: string[] = [];
    const nested = nestedRepositories(
      entries.map(({ path }) => path),
      before.keys(),
    );
    for (const path of nested) leftOut.push(nameText(path));
    const inside = entries.filter(({ path }) => !isAtOrBelow(path, nested) && !path.split('/').includes('.git'));
    const unknown = inside.filter(({ path, type }) => type !== 'directory' && !before.has(path));
    const ignored = await ignoredPaths(
      git,
      staging,
      base,
      unknown.map(({ path }) => path),
      { limits, signal },
    );
    const wanted = inside.filter(({ path, type }) => type !== 'directory' && !ignored.has(path));
    const bad = wanted.filter(({ path }) => !isSafePath(path)).map(({ path }) => path);
    if (bad.length > 0) throw unsafe('paths that lead into git or out of a checkout', bad);
    for (const { path } of wanted.filter(({ type }) => type === 'other')) leftOut.push(nameText(path));
    return { kept: wanted.filter(({ type }) => type !== 'other'), leftOut: leftOut.slice(0, leftOutMax) };
  }

  #checkAmount(kept: readonly CheckoutEntry[]): void {
    const { limits } = this.#options;
    const bytes = kept.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    const large = kept.filter(({ sizeBytes }) => sizeBytes > limits.fileBytes).map(({ path }) => path);
    if (kept.length > limits.files) throw unsafe(`more than ${limits.files} files`);
    if (large.length > 0) throw unsafe('files or links that are too large', large);
    if (bytes > limits.totalBytes) throw unsafe(`more than ${limits.totalBytes} bytes of files`);
  }
}

function isAtOrBelow(path: string, directories: ReadonlySet<string>): boolean {
  for (let at = path.length; at > 0; at = path.lastIndexOf('/', at - 1)) {
    if (directories.has(path.slice(0, at))) return true;
  }
  return false;
}

async function* stepsOf(given: {
  readonly kept: readonly CheckoutEntry[];
  readonly before: ReadonlyMap<string, TreeFile>;
  readonly baseline: Baseline;
  readonly checkout: CheckoutFiles;
  readonly signal: AbortSignal | undefined;
}): AsyncGenerator<TreeStep, void> {
  const { kept, before, baseline, checkout, signal } = given;
  const paths = new Set(kept.map(({ path }) => path));
  // What is gone goes first: a directory may stand where a file was.
  for (const path of before.keys()) if (!paths.has(path)) yield { kind: 'remove', path };
  for (const entry of kept) {
    if (before.has(entry.path) && baseline.has(entry)) continue;
    yield entry.type === 'symlink' ? linkStep(entry) : fileStep(entry, checkout, signal);
  }
}

function linkStep({ path, linkTarget }: CheckoutEntry): TreeStep {
  const target = linkTarget ?? '';
  return { kind: 'file', path, mode: '120000', sizeBytes: target.length, content: oneChunk(target) };
}

function fileStep(entry: CheckoutEntry, checkout: CheckoutFiles, signal: AbortSignal | undefined): TreeStep {
  const { path, sizeBytes } = entry;
  return { kind: 'file', path, mode: modeOf(entry), sizeBytes, content: contentOf(entry, checkout, signal) };
}

/** Opened when it is asked for: so whoever stops before that has nothing to close. */
async function* contentOf(
  entry: CheckoutEntry,
  checkout: CheckoutFiles,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array, void> {
  const { path, sizeBytes } = entry;
  const opened = await checkout.read(path, signal);
  let left = isSame({ ...opened.entry, path }, entry) ? sizeBytes : -1;
  for await (const chunk of opened.bytes) {
    left -= chunk.byteLength;
    if (left < 0) break;
    yield chunk;
  }
  if (left !== 0) throw moved(path);
}

function requireUnmoved(before: readonly CheckoutEntry[], after: readonly CheckoutEntry[]): void {
  for (const [index, entry] of before.entries()) {
    const now = after[index];
    if (now === undefined || now.path !== entry.path || !isSame(now, entry)) throw moved(entry.path);
  }
  if (after.length > before.length) throw moved(after[before.length]!.path);
}

function isSame(one: CheckoutEntry, other: CheckoutEntry): boolean {
  return (
    one.type === other.type &&
    one.inode === other.inode &&
    one.sizeBytes === other.sizeBytes &&
    one.mode === other.mode &&
    one.modifiedNs === other.modifiedNs &&
    one.changedNs === other.changedNs &&
    one.linkTarget === other.linkTarget
  );
}

function modeOf({ type, mode }: CheckoutEntry): FileMode {
  if (type === 'symlink') return '120000';
  return (mode & 0o100) === 0 ? '100644' : '100755';
}

function looksLike(entry: CheckoutEntry, file: TreeFile): boolean {
  return entry.type !== 'directory' && modeOf(entry) === file.mode && entry.sizeBytes === file.sizeBytes;
}

function moved(path: string): PlatformError {
  const message = `${JSON.stringify(nameText(path))} changed while it was read: something still runs there. Nothing was taken.`;
  return new PlatformError('file_changed', message, { details: { path: nameText(path) } });
}
