/** Runs sync's scripts in a sandbox and reads their answers. An answer that does not fit its form is a failed sync. */
import { createHash, randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
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
  async upload(path: string): Promise<string> {
    const target = `${this.directory}/pack-${randomUUID()}`;
    await this.#sandbox.files.write(
      target,
      createReadStream(path),
      this.#options.signal ? { signal: this.#options.signal } : {},
    );
    return target;
  }

  async download(bytes: number): Promise<Uint8Array> {
    const data = await this.#sandbox.files.read(`${this.directory}/pack.out`, { offset: 0, length: bytes });
    if (data.byteLength !== bytes) throw new PlatformError('sync_failed', 'The pack from the sandbox is not whole.');
    return data;
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
