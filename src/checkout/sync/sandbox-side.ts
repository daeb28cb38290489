/** Runs sync's scripts in a sandbox and reads their answers. An answer that does not fit its form is a failed sync. */
import { createHash, randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { Transform } from 'node:stream';
import { PlatformError } from '../../protocol/index.ts';
import type { Sandbox } from '../../sdk/index.ts';
import { type Checkout, refused } from './checkout.ts';
import type { SyncOptions } from './options.ts';

/** Above it a pack goes as a file and not with the command. */
export const inlinePackBytes = 4 * 1024 * 1024;
const scriptTimeoutMs = 30 * 60_000;
const headerLimitBytes = 64 * 1024;

export interface SandboxAnswer {
  /** What the script refuses with; undefined when it did its work. */
  readonly error: string | undefined;
  readonly fields: ReadonlyMap<string, string>;
  readonly haves: readonly string[];
  readonly data: Uint8Array;
}

export class SandboxSide {
  readonly #sandbox: Sandbox;
  readonly #options: SyncOptions;
  readonly #words: readonly string[];
  /** Where sync keeps its own in the sandbox. */
  readonly directory: string;

  constructor(sandbox: Sandbox, checkout: Checkout, options: SyncOptions) {
    const workspace = options.directory ?? '/workspace';
    this.#sandbox = options.leaseToken === undefined ? sandbox : sandbox.withLeaseToken(options.leaseToken);
    this.#options = options;
    this.directory = `/var/lib/atoll-sync/${createHash('sha256').update(workspace).digest('hex').slice(0, 12)}`;
    this.#words = [workspace, this.directory, checkout.kind];
  }

  async run(script: string, words: readonly string[], stdin: Uint8Array = new Uint8Array()): Promise<SandboxAnswer> {
    const { signal } = this.#options;
    const result = await this.#sandbox.exec(['sh', '-c', script, 'atoll-sync', ...this.#words, ...words], {
      cwd: '/',
      stdin,
      timeoutMs: scriptTimeoutMs,
      ...(signal && { signal }),
    });
    if (result.exitCode !== 0 || result.stdoutTruncated) {
      const said = result.stderr.trim().slice(-500);
      throw new PlatformError('sync_failed', `Sync broke off in the sandbox: ${said || `exit ${result.exitCode}`}`);
    }
    return parseAnswer(result.stdoutBytes);
  }

  /** The name under which a large pack lies in the sandbox afterwards. */
  async upload(path: string, onBytes: (bytes: number) => void): Promise<string> {
    const target = `${this.directory}/pack-${randomUUID()}`;
    const { signal } = this.#options;
    let sent = 0;
    const counted = new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        sent += chunk.length;
        onBytes(sent);
        done(null, chunk);
      },
    });
    const stream = createReadStream(path).on('error', (error) => counted.destroy(error));
    await this.#sandbox.files.write(target, stream.pipe(counted), signal ? { signal } : {});
    return target;
  }

  /** Brings the pack that a script has left into a file here, never more than it announced. */
  async download(path: string, bytes: number, onBytes: (bytes: number) => void): Promise<void> {
    const { signal } = this.#options;
    const place = `${this.directory}/pack.out`;
    const { stream } = await this.#sandbox.files.open(place, { offset: 0, length: bytes, ...(signal && { signal }) });
    const file = await open(path, 'w', 0o600);
    let got = 0;
    try {
      for await (const chunk of stream) {
        got += chunk.byteLength;
        if (got > bytes) break;
        await file.writeFile(chunk);
        onBytes(got);
      }
    } finally {
      await file.close();
    }
    if (got !== bytes) throw new PlatformError('sync_failed', 'The pack from the sandbox is not whole.');
  }
}

export function parseAnswer(bytes: Uint8Array): SandboxAnswer {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = buffer.subarray(0, headerLimitBytes).indexOf('\n\n');
  if (end < 0) throw new PlatformError('sync_failed', 'The answer from the sandbox is not whole.');
  const fields = new Map<string, string>();
  const haves: string[] = [];
  for (const line of buffer.toString('latin1', 0, end).split('\n')) {
    const space = line.indexOf(' ');
    const [name, value] = [line.slice(0, space), line.slice(space + 1)];
    if (name === 'have' && /^[0-9a-f]{40}$/.test(value)) haves.push(value);
    else fields.set(name, value);
  }
  return { error: fields.get('error'), fields, haves, data: buffer.subarray(end + 2) };
}

/** An object name out of an answer. */
export function objectField(answer: SandboxAnswer, name: string): string {
  const value = answer.fields.get(name) ?? '';
  if (!/^[0-9a-f]{40}$/.test(value)) throw new PlatformError('sync_failed', `The sandbox gave no good "${name}".`);
  return value;
}

export function objectOrNone(answer: SandboxAnswer, name: string): string | null {
  return answer.fields.get(name) === 'none' ? null : objectField(answer, name);
}

/** What a script refused with, as an error that says what to do. */
export function refusalOf(error: string): PlatformError {
  if (error === 'no-git') {
    return refused(
      'The sandbox has no git, which sync needs there. Use a template that has it, or install it (`apt-get install git`).',
    );
  }
  if (error === 'lost-git') {
    return refused('The checkout in the sandbox has lost its .git. The next push makes it again and keeps the files.');
  }
  if (error === 'fresh') return refused('Nothing was ever pushed to this sandbox.');
  return new PlatformError('sync_failed', `The sandbox could not do its part: ${error}`);
}
