/** Ids that are the same in every repeat of the same work, so that nothing is made twice and what a crash left can be found by name. */
import { createHash } from 'node:crypto';
import { type Id, type IdKind, idPrefixes } from '../protocol/index.ts';

export function derivedId<Kind extends IdKind>(kind: Kind, from: string): Id<Kind> {
  const digest = createHash('sha256').update(from).digest();
  let text = '';
  for (let value = BigInt(`0x${digest.toString('hex')}`); text.length < 20; value /= 36n) {
    text += (value % 36n).toString(36);
  }
  return `${idPrefixes[kind]}${text}` as Id<Kind>;
}
