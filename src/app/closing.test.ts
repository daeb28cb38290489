import { expect, test } from 'vitest';
import { Closing } from './closing.ts';

test('steps run in reverse, all of them, though one fails, and the failure is told', async () => {
  const closing = new Closing();
  const ran: string[] = [];
  closing.add(async () => void ran.push('first opened'));
  closing.add(async () => {
    ran.push('failing');
    throw new Error('stuck');
  });
  closing.add(async () => void ran.push('last opened'));

  await expect(closing.run()).rejects.toThrow('stuck');
  await expect(closing.run()).rejects.toThrow('stuck');

  expect(ran).toEqual(['last opened', 'failing', 'first opened']);
});
