import { expect, test } from 'vitest';
import { InputLine } from './input-line.ts';

function rig(limitBytes = 1_000) {
  const done: string[] = [];
  const errors: unknown[] = [];
  const gates: PromiseWithResolvers<void>[] = [];
  const step = async (what: string) => {
    done.push(what);
    const gate = Promise.withResolvers<void>();
    gates.push(gate);
    await gate.promise;
  };
  const line = new InputLine({ limitBytes, onError: (error) => errors.push(error) });
  const target = {
    write: (bytes: Uint8Array) => step(Buffer.from(bytes).toString()),
    resize: ({ columns, rows }: { columns: number; rows: number }) => step(`${columns}x${rows}`),
  };
  /** The call that is under way is answered. */
  const answer = async (error?: Error) => {
    const gate = gates.shift()!;
    if (error === undefined) gate.resolve();
    else gate.reject(error);
    await new Promise(setImmediate);
  };
  return { line, target, done, errors, answer, type: (text: string) => line.write(Buffer.from(text)) };
}

test('one call at a time; what is typed meanwhile goes with the next, in order with sizes', async () => {
  const { line, target, done, answer, type } = rig();
  line.open(target);
  type('a');
  type('b');
  type('c');
  line.resize({ columns: 1, rows: 1 });
  line.resize({ columns: 2, rows: 2 });
  type('d');
  expect(done).toEqual(['a']);
  await answer();
  expect(done).toEqual(['a', 'bc']);
  await answer();
  expect(done).toEqual(['a', 'bc', '2x2']);
  await answer();
  expect(done).toEqual(['a', 'bc', '2x2', 'd']);
});

test('what comes before there is a terminal waits for it', async () => {
  const { line, target, done, type } = rig();
  type('early');
  expect(done).toEqual([]);
  line.open(target);
  expect(done).toEqual(['early']);
});

test('what waits is bounded: more is refused, and what is taken makes room', async () => {
  const { line, target, done, answer, type } = rig(4);
  line.open(target);
  expect(type('1234')).toBe(true);
  expect(type('5678')).toBe(true);
  expect(type('9')).toBe(false);
  await answer();
  expect(type('9')).toBe(true);
  await answer();
  expect(done).toEqual(['1234', '5678', '9']);
});

test('a call that fails is told, and the next one is made', async () => {
  const { line, target, done, errors, answer, type } = rig();
  line.open(target);
  type('a');
  type('b');
  await answer(new Error('no'));
  expect(errors).toEqual([new Error('no')]);
  expect(done).toEqual(['a', 'b']);
});

test('many small pieces go as one, and sizes between them are bounded too', async () => {
  const { line, target, done, answer, type } = rig(100_000);
  line.open(target);
  type('first');
  for (let i = 0; i < 50_000; i++) expect(type(String(i % 10))).toBe(true);
  await answer();
  expect(done[1]).toBe('0123456789'.repeat(5_000));
  let taken = 0;
  for (; taken < 10_000; taken++) {
    if (!line.resize({ columns: 1, rows: taken + 1 }) || !type('x')) break;
  }
  expect(taken).toBeGreaterThan(100);
  expect(taken).toBeLessThan(10_000);
  await answer();
  expect(done[2]).toBe('1x1');
  await answer();
  expect(type('y')).toBe(true);
});
