import { expect, test } from 'vitest';
import { sentenceOf } from './readiness.ts';

test('P55: each way not to become ready has a sentence of its own, also where no reason is recorded', () => {
  const failure = { step: 'npm ci', exitCode: 3, tail: '' };
  const sentences = [
    sentenceOf({ ...failure, reason: 'failed' }),
    sentenceOf({ ...failure, reason: 'failed', exitCode: null }),
    sentenceOf({ ...failure, reason: 'timed_out' }),
    sentenceOf({ ...failure, reason: 'cancelled' }),
    sentenceOf(null),
  ];
  expect(sentences).toEqual([
    'its set-up step "npm ci" ended with 3',
    'its set-up step "npm ci" ended with an unknown status',
    'its set-up took too long at "npm ci"',
    'its set-up was cancelled at "npm ci"',
    'it ended without becoming ready, and no reason is recorded',
  ]);
});
