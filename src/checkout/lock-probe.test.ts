import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect } from 'vitest';
import { requires, testWith } from '../../test/support/requires.ts';

const test = testWith(requires.linux, requires.compiler);
const run = promisify(execFile);
const module = (name: string) => JSON.stringify(join(import.meta.dirname, name));
const programs = {
  open: `
    import { Cache } from ${module('cache.ts')};
    try {
      const [path] = process.argv.slice(2);
      const cache = Cache.open({ path, nowMs: Date.now, owner: { pid: 1, command: 'test' }, warn: () => {} });
      console.log('opened', cache.sessions().length);
    } catch (error) {
      console.log(error.code, error.message);
    }`,
  busy: `
    import { lockFaultOf } from ${module('lock-probe.ts')};
    console.log(lockFaultOf({ errcode: 5 }, process.argv[2]));`,
};

let directory: string;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'atoll-locks-'));
  const source = join(import.meta.dirname, '../../test/support/programs/locks.c');
  await run('cc', ['-shared', '-fPIC', '-o', join(directory, 'locks.so'), source, '-ldl']);
  for (const [name, text] of Object.entries(programs)) writeFileSync(join(directory, `${name}.ts`), text);
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** What a process says whose locks are of this kind. */
async function said(program: keyof typeof programs, locks: string): Promise<string> {
  const env = { ...process.env, LD_PRELOAD: join(directory, 'locks.so'), LOCKS: locks, NODE_NO_WARNINGS: '1' };
  const path = join(directory, `${program}-${locks}`, 'cache.db');
  const folder = program === 'busy' ? directory : path;
  return (await run(process.execPath, [join(directory, `${program}.ts`), folder], { env })).stdout.trim();
}

test(
  'P17: locks that everybody gets, that nobody gets or that are refused are found out and told; those that work are not',
  async () => {
    expect(await said('open', 'work')).toBe('opened 0');
    expect(await said('open', 'lie')).toMatch(
      /^checkout_cache_unusable The file system of .*cache\.db has no working locks \(a second process gets a lock that is held\)\. Set ATOLL_STATE/,
    );
    expect(await said('open', 'refuse')).toMatch(/^checkout_cache_unusable .* no working locks \(disk I\/O error\)/);
    expect(await said('busy', 'none')).toBe('nobody gets a lock');
    expect(await said('busy', 'work')).toBe('undefined');
    expect(readdirSync(directory).filter((name) => name.includes('probe'))).toEqual([]);
  },
  { timeout: 60_000 },
);
