import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openCheckout } from './checkout.ts';

let top: string;
beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'atoll-shadow-'));
  execFileSync('git', ['init', '-q', '-b', 'main', join(top, 'work')]);
});
afterEach(() => rmSync(top, { recursive: true, force: true }));

const open = () =>
  openCheckout(join(top, 'work'), { env: { ...process.env, HOME: top }, stateDirectory: join(top, 'state') });

test('however many open a checkout for the first time at once, all find one shadow that is whole', async () => {
  const [first, ...others] = await Promise.all(Array.from({ length: 8 }, open));
  expect(new Set(others.map(({ shadow }) => shadow))).toEqual(new Set([first!.shadow]));
  expect(readFileSync(join(first!.shadow, 'config'), 'utf8')).toContain('protectNTFS = true');
  expect(
    execFileSync('git', ['--git-dir', first!.shadow, 'rev-parse', '--git-dir'], { encoding: 'utf8' }),
  ).toBeTruthy();
});

test('whoever opens it again leaves alone what others may be reading, and replaces whole what has changed', async () => {
  const { shadow } = await open();
  const exclude = join(shadow, 'info/exclude');
  const { ino } = statSync(exclude);
  await open();
  expect(statSync(exclude).ino).toBe(ino);
  writeFileSync(join(top, 'work/.git/info/exclude'), 'ignored-by-me\n');
  await open();
  expect(readFileSync(exclude, 'utf8')).toContain('ignored-by-me');
  // Another file under the same name: nobody has seen it half-written.
  expect(statSync(exclude).ino).not.toBe(ino);
});
