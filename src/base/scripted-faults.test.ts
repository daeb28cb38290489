import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { parseFaults, ScriptedFaults } from './scripted-faults.ts';

test('a point that nobody scripted does nothing', async () => {
  await new ScriptedFaults().hit('anything');
});

test('an error is thrown at its point only, until it is cleared', async () => {
  const faults = new ScriptedFaults();
  faults.set('a', { kind: 'error', error: new Error('told so') });
  await faults.hit('b');
  await expect(faults.hit('a')).rejects.toThrow('told so');
  faults.clear('a');
  await faults.hit('a');
});

test('a held point tells that it was reached and goes on when opened', async () => {
  const faults = new ScriptedFaults();
  const gate = faults.hold('a');
  expect(() => faults.hold('a')).toThrow('held already');
  const seen: string[] = [];
  const hits = [1, 2].map(() => faults.hit('a').then(() => seen.push('passed')));
  await gate.reached;
  seen.push('open');
  gate.open();
  await Promise.all(hits);
  await faults.hit('a');
  expect(seen).toEqual(['open', 'passed', 'passed']);
});

test('a script is read, and a misspelt one refused', async () => {
  await expect(parseFaults('a=error, b=delay:1').hit('a')).rejects.toThrow('"a" fails as it was told');
  await parseFaults('a=error, b=delay:1').hit('b');
  await parseFaults('').hit('a');
  for (const text of ['a', 'a=', 'a=explode', 'a=delay', 'a=delay:x', '=crash', '>a=crash', 'a=crash;b=crash']) {
    expect(() => parseFaults(text), text).toThrow('is not a fault');
  }
});

test('a fault behind another point waits until that one was hit', async () => {
  const faults = parseFaults('first>second=error');
  await faults.hit('second');
  await faults.hit('first');
  await expect(faults.hit('second')).rejects.toThrow('"second" fails as it was told');
});

test('a crash is a SIGKILL, and nothing after the point runs', async () => {
  const script = `
    const { parseFaults } = await import(${JSON.stringify(import.meta.resolve('./scripted-faults.ts'))});
    process.stdout.write('before');
    await parseFaults('here=crash').hit('here');
    process.stdout.write('after');`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.on('data', (chunk) => (output += chunk));
  const [, signal] = await once(child, 'close');
  expect(signal).toBe('SIGKILL');
  expect(output).toBe('before');
});
