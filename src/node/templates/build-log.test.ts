import { expect, test } from 'vitest';
import type { BuildItem, NodeBuild } from '../../protocol/index.ts';
import { newId } from '../../protocol/index.ts';
import { BuildLog } from './build-log.ts';

const build: NodeBuild = {
  ...{ buildId: newId('build'), name: 'x', state: 'running', startedAtMs: 1 },
  ...{ endedAtMs: null, templateId: null, error: null },
};
const ended: NodeBuild = { ...build, state: 'succeeded', endedAtMs: 2 };
const never = new AbortController().signal;
const openLog = () => new BuildLog({ teamId: 'tea', key: 'x', build });

async function read(log: BuildLog, after = 0, signal = never): Promise<BuildItem[]> {
  const items: BuildItem[] = [];
  for await (const item of log.follow(after, signal)) items.push(item);
  return items;
}

test('readers who come at any time get the same items once each, and end with the build', async () => {
  const log = openLog();
  const early = read(log);
  log.step({ step: 1, steps: 2, text: 'one', cached: false });
  log.say('hello');
  const middle = read(log, 1);
  log.end(ended);
  const all = await read(log);
  expect(all.map(({ kind, sequence }) => `${kind} ${sequence}`)).toEqual(['step 1', 'log 2', 'ended 3']);
  expect(await early).toEqual(all);
  expect(await middle).toEqual(all.slice(1));
  expect(await read(log, 3)).toEqual([]);
  expect(log.build).toEqual(ended);
});

test('a log that was kept is read as it was', async () => {
  const log = openLog();
  log.say('hello');
  log.end(ended);
  const again = new BuildLog({ teamId: 'tea', key: 'x', build: log.build, items: log.items });
  expect(await read(again)).toEqual(await read(log));
});

test('the oldest goes when there is too much, and whoever missed it is told', async () => {
  const log = openLog();
  for (let i = 0; i < 5; i++) log.say('x'.repeat(1024 * 1024));
  log.end(ended);
  const [first, second] = await read(log);
  expect(first).toEqual({ kind: 'dropped', sequence: second!.sequence - 1 });
  const kept = (await read(log)).reduce((sum, item) => sum + (item.kind === 'log' ? item.text.length : 0), 0);
  expect(kept).toBe(2 * 1024 * 1024);
});

test('a reader that leaves ends its reading and nothing else', async () => {
  const log = openLog();
  const leaving = new AbortController();
  const left = read(log, 0, leaving.signal);
  log.say('hello');
  leaving.abort();
  expect((await left).length).toBeLessThanOrEqual(1);
  log.end(ended);
  expect(await read(log)).toHaveLength(2);
});
