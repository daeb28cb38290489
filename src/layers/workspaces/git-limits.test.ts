/** How a git of the node is started, fed, bounded and ended. */
import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { GitFailure, GitProgram } from './git-program.ts';
import { makeRepository } from './repository.ts';

let home: string;
let repository: string;
let git: GitProgram;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'atoll-git-'));
  repository = join(home, 'r.git');
  await makeRepository(repository, { durable: false });
  git = new GitProgram({ home });
});
afterEach(() => rm(home, { recursive: true }));

const chunk = Buffer.alloc(256 * 1024, 'x');

test('bytes are fed at the pace of git, and every one of them arrives', async () => {
  const count = 16;
  async function* bytes() {
    for (let at = 0; at < count; at++) yield chunk;
  }
  const hash = createHash('sha1').update(`blob ${count * chunk.byteLength}\0`);
  for (let at = 0; at < count; at++) hash.update(chunk);
  const words = ['hash-object', '-w', '--stdin'];
  expect(await git.line(repository, words, { stdin: bytes() })).toBe(hash.digest('hex'));
});

test('a git that ends early ends the feeding, and what fails in the feeding ends git', async () => {
  let isEnded = false;
  async function* endless() {
    try {
      for (;;) yield chunk;
    } finally {
      isEnded = true;
    }
  }
  expect(await git.line(repository, ['version'], { stdin: endless() })).toContain('git version');
  await expect.poll(() => isEnded).toBe(true);
  async function* failing() {
    yield chunk;
    throw new Error('the sender broke off');
  }
  const feeding = git.run(repository, ['hash-object', '--stdin'], { stdin: failing() });
  await expect(feeding).rejects.toThrow('the sender broke off');
});

test('an answer, a time and a file have their limits, and a caller who goes ends it', async () => {
  const long = git.run(repository, ['version'], { outputMaxBytes: 2 });
  await expect(long).rejects.toMatchObject({ code: 'limit_exceeded' });
  // It would wait for its input for ever.
  async function* never() {
    await new Promise(() => {});
    yield chunk;
  }
  const slow = git.run(repository, ['hash-object', '--stdin'], { stdin: never(), timeoutMs: 50 });
  await expect(slow).rejects.toMatchObject({ code: 'limit_exceeded', message: expect.stringContaining('hash-object') });
  const stop = new AbortController();
  const left = git.run(repository, ['hash-object', '--stdin'], { stdin: never(), signal: stop.signal });
  stop.abort(new Error('the caller is gone'));
  await expect(left).rejects.toThrow('the caller is gone');
  const call = { stdin: chunk, hostileBytes: 1024 };
  await expect(
    git.run(repository, ['-c', 'core.compression=0', 'hash-object', '-w', '--stdin'], call),
  ).rejects.toThrow();
});

test('what is wrong is told as what it is: no program, a full disk, a failure of git', async () => {
  const nowhere = git.run(repository, ['version'], { cwd: join(home, 'none') });
  await expect(nowhere).rejects.toMatchObject({ code: 'storage_unsupported' });
  const full = ['-c', "alias.full=!echo 'fatal: write error: No space left on device' >&2; exit 128", 'full'];
  await expect(git.run(repository, full)).rejects.toMatchObject({ code: 'insufficient_storage' });
  const failure = await git.run(repository, ['cat-file', '-t', 'none']).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(GitFailure);
  expect(failure).toMatchObject({ command: 'cat-file', code: 128, said: expect.stringContaining('none') });
  expect(await git.run(repository, ['cat-file', '-e', '0'.repeat(40)], { accept: [1] })).toMatchObject({ code: 1 });
});

test('whoever stops reading a stream ends the git that writes it', async () => {
  const id = await git.line(repository, ['hash-object', '-w', '--stdin'], { stdin: Buffer.alloc(8_000_000, 'y') });
  let bytes = 0;
  for await (const part of git.stream(repository, ['cat-file', 'blob', id])) {
    bytes += part.byteLength;
    break;
  }
  expect(bytes).toBeGreaterThan(0);
  expect(bytes).toBeLessThan(8_000_000);
});
