/**
 * What has changed below a path since an earlier look at it: by going through the tree again and comparing with the mark of that look. What comes
 * and goes between two looks is not told; whatever differs is, however it came to differ, and even if it happens while the tree is gone through.
 */
import { isUtf8 } from 'node:buffer';
import {
  type FileChange,
  type FileChanges,
  type FileChangesOrder,
  type FileEntry,
  PlatformError,
} from '../../protocol/index.ts';
import { brokenProtocol, callWorker, type FileContext } from './call.ts';
import { absolutePath, bytesBelow, entryBelow } from './entry.ts';
import { isChanged, keyOf, Mark, type MarkedEntry, MarkWriter, pathOf, stateOf } from './tree-mark.ts';
import { requestFrames } from './wire.ts';

/** Of one tree: it is gone through whole, and its mark is kept. */
const entriesMax = 100_000;

/** Where marks are kept. They are found again by the name that `save` gives. */
export interface TreeMarks {
  save(mark: Uint8Array): Promise<string>;
  /** `undefined`: it is not kept any more, or never was. */
  load(name: string): Promise<Uint8Array | undefined>;
}

export async function fileChanges(
  context: FileContext,
  order: Pick<FileChangesOrder, 'path' | 'since' | 'limit'>,
  options: { readonly marks: TreeMarks; readonly nowMs: number },
): Promise<FileChanges> {
  const path = absolutePath(order.path);
  const about = JSON.stringify([path, context.user]);
  const before = order.since === null ? undefined : await openMark(options.marks, order.since, about);
  const begin = () => new Comparison({ path, before, limit: order.limit, nowMs: options.nowMs });
  const { changes, mark, cutAt } = await compare(context, path, begin);
  const packed = await mark.finish({ about, from: cutAt ?? Buffer.alloc(0) });
  return { changes, hasMore: cutAt !== undefined, cursor: await options.marks.save(packed) };
}

async function openMark(marks: TreeMarks, name: string, about: string): Promise<Mark> {
  const packed = await marks.load(name);
  if (packed === undefined) {
    throw new PlatformError('output_dropped', 'This cursor is no longer kept. Begin anew without one.', {
      details: { path: 'since' },
    });
  }
  const mark = await Mark.open(packed);
  if (mark.about === about) return mark;
  const [path, user] = JSON.parse(mark.about) as [string, string | null];
  const message = `This cursor is of ${path} as ${user ?? 'root'} sees it.`;
  throw new PlatformError('invalid_request', message, { details: { path: 'since' } });
}

async function compare(context: FileContext, path: string, begin: () => Comparison): Promise<Comparison> {
  let comparison: Comparison;
  return await callWorker<Comparison>(context, {
    path,
    isChange: false,
    frame: (request) => {
      comparison = begin();
      return requestFrames.list(request, { path, depth: 0, limit: entriesMax + 1, after: new Uint8Array() });
    },
    take: (answer) => {
      if (answer.kind === 'entry') {
        const { path: relative, stat, linkTarget } = answer;
        const entry = { key: keyOf(relative), state: stateOf(stat, comparison.nowMs) };
        if (!comparison.take(entry, () => entryBelow(path, relative, stat, linkTarget))) throw brokenProtocol(answer);
        return undefined;
      }
      if (answer.kind !== 'done') throw brokenProtocol(answer);
      comparison.finish();
      return { result: comparison };
    },
  });
}

interface ComparisonOptions {
  readonly path: string;
  readonly before: Mark | undefined;
  readonly limit: number;
  /** Before the first entry was looked at. */
  readonly nowMs: number;
}

/**
 * Two sequences in the same order, side by side.
 *
 * Invariants:
 *  - The mark that comes out of it is of the tree as it is now, up to where `limit` was reached, and as it was before from there on: so what is not
 *    told this time is told the next.
 *  - The next one begins where this one was cut, however much has changed again before that place: a round has an end.
 */
class Comparison {
  readonly changes: FileChange[] = [];
  readonly mark = new MarkWriter();
  readonly nowMs: number;
  /** The first that is not told because of `limit`. */
  cutAt: Buffer | undefined;
  readonly #options: ComparisonOptions;
  readonly #from: Buffer;
  readonly #before: Iterator<MarkedEntry, undefined>;
  #old: MarkedEntry | undefined;
  #last: Buffer = Buffer.alloc(0);
  #count = 0;

  constructor(options: ComparisonOptions) {
    this.#options = options;
    this.nowMs = options.nowMs;
    this.#from = options.before?.from ?? Buffer.alloc(0);
    this.#before = (options.before?.entries() ?? [].values()) as Iterator<MarkedEntry, undefined>;
    this.#old = this.#before.next().value;
    for (; this.#old !== undefined && this.#isPast(this.#old.key); this.#old = this.#before.next().value) {
      this.mark.add(this.#old);
    }
  }

  /** The next entry; whether it is in order. */
  take(now: MarkedEntry, entryOf: () => FileEntry): boolean {
    if (Buffer.compare(this.#last, now.key) >= 0) return false;
    this.#last = now.key;
    if (++this.#count > entriesMax || this.mark.isTooLarge) throw tooMany();
    if (this.#isPast(now.key)) return true;
    this.#passTo(now.key);
    const old = this.#old;
    if (old?.key.equals(now.key)) {
      this.#old = this.#before.next().value;
      if (!isChanged(old.state, now.state)) this.mark.add(now);
      else if (this.#tell(now.key, () => ({ kind: 'modified', entry: entryOf() }))) this.mark.add(now);
      else this.mark.add(old);
      return true;
    }
    const isTold =
      this.#options.before === undefined || this.#tell(now.key, () => ({ kind: 'created', entry: entryOf() }));
    if (isTold) this.mark.add(now);
    return true;
  }

  finish(): void {
    this.#passTo(undefined);
  }

  /** What stood before `key` and is not there any more. */
  #passTo(key: Buffer | undefined): void {
    while (this.#old !== undefined && (key === undefined || Buffer.compare(this.#old.key, key) < 0)) {
      const old = this.#old;
      if (!this.#tell(old.key, () => deletedAt(this.#options.path, old.key))) this.mark.add(old);
      this.#old = this.#before.next().value;
    }
  }

  #tell(key: Buffer, change: () => FileChange): boolean {
    if (this.changes.length >= this.#options.limit) this.cutAt ??= key;
    else this.changes.push(change());
    return this.cutAt === undefined;
  }

  /** Told by the requests before this one of the same round. */
  #isPast(key: Buffer): boolean {
    return Buffer.compare(key, this.#from) < 0;
  }
}

function deletedAt(directory: string, key: Buffer): FileChange {
  const path = bytesBelow(directory, pathOf(key));
  const pathBase64 = isUtf8(path) ? null : path.toString('base64');
  return { kind: 'deleted', path: path.toString('utf8'), pathBase64 };
}

function tooMany(): PlatformError {
  const message = `A tree with more than ${entriesMax} entries is too large for this; ask about a part of it.`;
  return new PlatformError('limit_exceeded', message, { details: { limit: entriesMax } });
}
