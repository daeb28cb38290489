/** A pool that a test can afford. */
import type { PoolSizes } from '../../src/layers/index.ts';

const mebibyte = 1024 ** 2;

export const smallPool: PoolSizes = {
  initialBytes: 320 * mebibyte,
  reserveBytes: 64 * mebibyte,
  stepBytes: 128 * mebibyte,
  limitBytes: 1024 * mebibyte,
};
