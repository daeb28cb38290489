/**
 * The client of `atoll-init unpack`: tells it entry by entry what to write into a directory. native/PROTOCOL.md has the frames.
 *
 * Invariants:
 *  - Frames are sent in the order of the calls, and a caller waits while the program is behind: at most `batchBytes` are held here.
 *  - After `end` the whole tree is on disk. Whatever else happens, the program has ended when `close` returns, and the tree is worth nothing.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import type { Readable, Writable } from 'node:stream';
import { getSystemErrorName } from 'node:util';
import { encodeFrame, FrameReader, u32 } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import { readable } from './layer-names.ts';
import type { PaxTime } from './pax-records.ts';

export interface TreeEntry {
  readonly kind: keyof typeof kinds;
  /** Byte strings. */
  readonly path: string;
  readonly target?: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtime: PaxTime;
  /** Of a file: exactly so many bytes follow as data. */
  readonly size?: number;
  readonly attributes?: ReadonlyMap<string, Buffer>;
}

const kinds = { file: 'f', directory: 'd', knownDirectory: 'D', link: 'l', hardLink: 'h', fifo: 'p' } as const;
const frames = { entry: 1, data: 2, remove: 3, times: 4, end: 5, done: 16, failed: 17 } as const;
const batchBytes = 256 * 1024;
/** Bytes of one data frame. */
const dataBytes = 1024 * 1024;
const answerBytesMax = 16 * 1024;
const noSpace: ReadonlySet<number> = new Set([constants.errno.ENOSPC, constants.errno.EDQUOT]);

type Answer = { readonly kind: 'done' } | { readonly kind: 'failed'; readonly error: Error };

export class TreeWriter {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #answer: Promise<Answer>;
  #failure: Error | undefined;
  #batch: Buffer[] = [];
  #batchBytes = 0;

  /** The directory is there, empty, ours and of mode 0700. */
  constructor(options: { readonly program: string; readonly directory: string }) {
    this.#child = spawn(options.program, ['unpack', options.directory], {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: {},
    });
    // One that ends early says why in its answer; the broken pipe says nothing.
    this.#child.stdin.on('error', () => {});
    this.#answer = answerOf(this.#child);
    void this.#answer.then((answer) => {
      this.#failure = answer.kind === 'failed' ? answer.error : undefined;
    });
  }

  entry(entry: TreeEntry): Promise<void> | undefined {
    return this.#send(encodeFrame(frames.entry, ...entryParts(entry)));
  }

  async data(chunk: Buffer): Promise<void> {
    for (let at = 0; at < chunk.byteLength; at += dataBytes) {
      await this.#send(encodeFrame(frames.data, chunk.subarray(at, at + dataBytes)));
    }
  }

  remove(path: string, options: { readonly isDirectory: boolean }): Promise<void> | undefined {
    return this.#send(encodeFrame(frames.remove, Buffer.of(options.isDirectory ? 1 : 0), bytesOf(path)));
  }

  times(path: string, mtime: PaxTime): Promise<void> | undefined {
    return this.#send(encodeFrame(frames.times, timeOf(mtime), bytesOf(path)));
  }

  /** Waits until everything is on disk. */
  async end(): Promise<void> {
    await this.#send(encodeFrame(frames.end));
    await this.#flush();
    const answer = await this.#answer;
    if (answer.kind === 'failed') throw answer.error;
  }

  /** Ends the program wherever it is. May be called twice, and after `end`. */
  async close(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#answer;
  }

  /** A promise only where there is something to wait for: most entries are a few bytes. */
  #send(frame: Buffer): Promise<void> | undefined {
    if (this.#failure !== undefined) throw this.#failure;
    this.#batch.push(frame);
    this.#batchBytes += frame.byteLength;
    return this.#batchBytes >= batchBytes ? this.#flush() : undefined;
  }

  async #flush(): Promise<void> {
    const bytes = Buffer.concat(this.#batch, this.#batchBytes);
    this.#batch = [];
    this.#batchBytes = 0;
    if (this.#child.stdin.write(bytes)) return;
    const stop = new AbortController();
    await Promise.race([once(this.#child.stdin, 'drain', { signal: stop.signal }).catch(() => {}), this.#answer]);
    stop.abort();
    if (this.#failure !== undefined) throw this.#failure;
  }
}

function entryParts(entry: TreeEntry): Buffer[] {
  const path = bytesOf(entry.path);
  const target = bytesOf(entry.target ?? '');
  const head = Buffer.alloc(37);
  head.write(kinds[entry.kind], 0, 'latin1');
  head.writeUInt32LE(entry.mode, 1);
  head.writeUInt32LE(entry.uid, 5);
  head.writeUInt32LE(entry.gid, 9);
  timeOf(entry.mtime).copy(head, 13);
  head.writeBigUInt64LE(BigInt(entry.size ?? 0), 25);
  head.writeUInt16LE(path.byteLength, 33);
  head.writeUInt16LE(target.byteLength, 35);
  const parts = [head, path, target];
  for (const [name, value] of entry.attributes ?? []) {
    const key = bytesOf(name);
    const lengths = Buffer.alloc(2);
    lengths.writeUInt16LE(key.byteLength);
    parts.push(lengths, u32(value.byteLength), key, value);
  }
  return parts;
}

function timeOf(time: PaxTime): Buffer {
  const bytes = Buffer.alloc(12);
  bytes.writeBigInt64LE(BigInt(time.seconds), 0);
  bytes.writeUInt32LE(time.nanoseconds, 8);
  return bytes;
}

function bytesOf(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

/** Never throws: what is left when the program has ended, whatever ended it. */
async function answerOf(child: ChildProcessByStdio<Writable, Readable, null>): Promise<Answer> {
  const reader = new FrameReader({ limitBytes: answerBytesMax });
  let answer: Answer | undefined;
  child.stdout.on('data', (chunk: Buffer) => {
    for (const { type, body } of reader.push(chunk)) {
      answer = type === frames.done ? { kind: 'done' } : { kind: 'failed', error: failureOf(body) };
    }
  });
  const { promise, resolve } = Promise.withResolvers<string>();
  child.once('error', (error) => resolve(error.message));
  child.once('close', (code, signal) => resolve(`it ended with ${signal ?? code}`));
  const end = await promise;
  const message = `The program that writes the tree of an image did not finish: ${end}.`;
  return answer ?? { kind: 'failed', error: new PlatformError('isolation_failed', message) };
}

function failureOf(body: Buffer): Error {
  const errno = body.readUInt32LE(0);
  const stepEnd = 6 + body.readUInt16LE(4);
  const step = body.toString('utf8', 6, stepEnd);
  const path = readable(body.toString('latin1', stepEnd));
  const name = getSystemErrorName(-errno);
  if (step === 'attribute') {
    return new PlatformError('image_refused', `The file system does not take the attributes of "${path}" (${name}).`);
  }
  if (noSpace.has(errno)) return new PlatformError('insufficient_storage', 'The disk has no room for the image.');
  return new PlatformError('isolation_failed', `Writing the image failed at "${path}": ${step}: ${name}.`);
}
