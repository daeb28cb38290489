import fc from 'fast-check';
import { expect, test } from 'vitest';
import { LeaseQueue, type Waiter } from './lease-queue.ts';

interface Named extends Waiter {
  readonly name: number;
}

test('a waiter behind another for the same place does not overtake it, and one for other places does', () => {
  const queue = new LeaseQueue<Named>();
  queue.occupy(['a']);
  queue.add({ name: 1, places: ['a', 'b'] });
  queue.add({ name: 2, places: ['b'] });
  queue.add({ name: 3, places: ['c'] });
  expect(queue.takeReady().map((one) => one.name)).toEqual([3]);
  queue.free('a');
  expect(queue.takeReady().map((one) => one.name)).toEqual([1]);
});

test('a place is handed over only to the next in line, and only if it wants nothing else', () => {
  const queue = new LeaseQueue<Named>();
  queue.occupy(['a']);
  queue.add({ name: 1, places: ['b'] });
  queue.add({ name: 2, places: ['a'] });
  queue.add({ name: 3, places: ['a', 'b'] });
  queue.add({ name: 4, places: ['a'] });
  expect(queue.takeSuccessor('a')?.name).toBe(2);
  expect(queue.takeSuccessor('a')).toBeUndefined();
  expect(queue.isBusy('a')).toBe(true);
  expect(queue.isFree(['c'])).toBe(true);
  expect(queue.isFree(['b'])).toBe(false);
  expect(queue.removeAll().map((one) => one.name)).toEqual([1, 3, 4]);
  expect(queue.takeSuccessor('a')).toBeUndefined();
});

test('K30: K31: whatever is wanted, in whatever order, nobody shares a place, everybody is served, in order', () => {
  const wish = fc.record({
    places: fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'd'), { minLength: 1, maxLength: 4 }),
    isHandedOver: fc.boolean(),
    givesUp: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(wish, { minLength: 1, maxLength: 12 }), fc.infiniteStream(fc.nat()), (wishes, choices) => {
      const queue = new LeaseQueue<Named & { givesUp: boolean; isHandedOver: boolean }>();
      const holders = new Map<string, number>();
      const held: (Named & { isHandedOver: boolean })[] = [];
      const served: (typeof held)[number][] = [];
      const hold = (one: (typeof held)[number]) => {
        for (const place of one.places) {
          expect(holders.has(place)).toBe(false);
          holders.set(place, one.name);
        }
        // Nobody who came earlier and did not give up still waits for one of its places.
        held.push(one);
        served.push(one);
      };
      const waiting = wishes.map((one, name) => ({ ...one, name }));
      for (const one of waiting) queue.add(one);
      const patient = waiting.filter((one) => !one.givesUp);
      for (const one of waiting) if (one.givesUp) expect(queue.remove(one)).toBe(true);
      for (const one of queue.takeReady()) hold(one);
      while (held.length > 0) {
        const [choice = 0] = choices.take(1);
        const [ended] = held.splice(choice % held.length, 1);
        for (const place of ended!.places) holders.delete(place);
        const [place = ''] = ended!.places;
        const successor = ended!.places.length === 1 && ended!.isHandedOver ? queue.takeSuccessor(place) : undefined;
        if (successor !== undefined) hold(successor);
        else for (const one of ended!.places) queue.free(one);
        for (const one of queue.takeReady()) hold(one);
      }
      // No deadlock: when nobody holds anything, nobody waits either.
      expect(served.map((one) => one.name).sort((a, b) => a - b)).toEqual(patient.map((one) => one.name));
      for (const place of ['a', 'b', 'c', 'd'] as const) {
        const inOrder = patient.filter((one) => one.places.includes(place)).map((one) => one.name);
        expect(served.filter((one) => one.places.includes(place)).map((one) => one.name)).toEqual(inOrder);
      }
    }),
    { numRuns: 500 },
  );
});
