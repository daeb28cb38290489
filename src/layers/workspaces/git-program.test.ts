/** What a git of the node may use, and how it ends. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { GitProgram } from './git-program.ts';

let home: string;
let git: GitProgram;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'atoll-git-'));
  git = new GitProgram({ home, memoryBytes: 64 * 1024 ** 2 });
});
afterEach(() => rm(home, { recursive: true }));

const shell = (script: string) => ['-c', `alias.run=!${script}`, 'run'];

test('C81: what a git leaves behind, holding its output, ends with the limit too', async () => {
  const left = git.run(home, shell('sleep 1000 & exit 0'), { timeoutMs: 200 });
  await expect(left).rejects.toMatchObject({ code: 'limit_exceeded' });
  const over = new AbortController();
  const aborted = git.run(home, shell('echo gone >&2; sleep 1000 & exit 0'), { signal: over.signal });
  setTimeout(() => over.abort(new Error('enough')), 200);
  await expect(aborted).rejects.toThrow('enough');
});

test('one that works on what others have made takes so much memory and no more', async () => {
  const limits = async (call: object) => (await git.run(home, shell('cat /proc/self/limits'), call)).stdout.toString();
  expect(await limits({})).toMatch(/^Max data size +unlimited/m);
  expect(await limits({ isHostile: true })).toMatch(/^Max data size +67108864 /m);
  expect(await limits({ hostileBytes: 1_000_000 })).toMatch(/^Max address space +67108864 /m);
  const died = git.run(home, shell('echo "fatal: Out of memory, calloc failed" >&2; exit 128'), { isHostile: true });
  await expect(died).rejects.toMatchObject({ code: 'limit_exceeded' });
});
