import { expect, test } from 'vitest';
import { type NodeEvent, newId } from '../protocol/index.ts';
import { EventFeed } from './event-feed.ts';

const ended = (generation: number): NodeEvent => ({
  kind: 'ended',
  sandboxId: newId('sandbox'),
  generation,
  reason: 'crashed',
  atMs: 1,
});

async function collect(events: AsyncIterable<NodeEvent>): Promise<NodeEvent[]> {
  const all: NodeEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

test('a watcher gets everything after the call, also what happened before it read', async () => {
  const feed = new EventFeed();
  feed.publish(ended(1));
  const stop = new AbortController();
  const all = collect(feed.watch(stop.signal));
  const [a, b] = [ended(2), ended(3)];
  feed.publish(a);
  await Promise.resolve();
  feed.publish(b);
  feed.close();
  expect(await all).toEqual([{ kind: 'watching' }, a, b]);
  expect(feed.watchers).toBe(0);
});

test('an abort ends the watch', async () => {
  const feed = new EventFeed();
  const stop = new AbortController();
  const all = collect(feed.watch(stop.signal));
  await Promise.resolve();
  stop.abort();
  expect(await all).toEqual([{ kind: 'watching' }]);
  expect(feed.watchers).toBe(0);
});

test('a watcher that does not read is ended with a refusal, not skipped over', async () => {
  const feed = new EventFeed();
  const events = feed.watch(new AbortController().signal);
  for (let i = 0; i < 10_001; i++) feed.publish(ended(1));
  expect(feed.watchers).toBe(0);
  await expect(collect(events)).rejects.toMatchObject({ code: 'output_dropped' });
});
