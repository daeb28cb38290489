import { expect, test } from 'vitest';
import { FakeClock } from '../../test/support/fake-clock.ts';
import { silentLogger } from '../base/index.ts';
import { newId } from '../protocol/index.ts';
import { BranchSizes } from './branch-sizes.ts';
import type { WriterCharges } from './layer-driver.ts';
import { newRecord } from './layer-manifest.ts';
import { LayerPaths } from './layer-paths.ts';

const begun = { foreignBytes: 600, chargedBytes: 300 };

/** A file system that does what it is ordered at once, and answers the first order when `answer` is called. */
function rig() {
  const clock = new FakeClock();
  const record = newRecord({ id: newId('writable'), base: 'host', parents: [], foreignBytes: begun.foreignBytes });
  const disk = { limitBytes: 0, olderBytes: begun.foreignBytes };
  const ordered = Promise.withResolvers<void>();
  const answered = Promise.withResolvers<void>();
  const looked = Promise.withResolvers<void>();
  let isHeld = false;
  const charges: WriterCharges = {
    charged: async () => ({ bytes: begun.chargedBytes, exclusiveBytes: 0, limitBytes: disk.limitBytes, changedIn: 1 }),
    limit: async (_, bytes) => {
      disk.limitBytes = bytes;
      if (!isHeld) return;
      isHeld = false;
      ordered.resolve();
      await answered.promise;
    },
    referred: async () => begun.foreignBytes,
    older: async () => {
      looked.resolve();
      return disk.olderBytes;
    },
  };
  const sizes = new BranchSizes({
    ...{ charges, clock, log: silentLogger, paths: new LayerPaths('/nowhere') },
    find: (id) => (id === record.id ? record : undefined),
  });
  const holdNext = () => {
    isHeld = true;
  };
  return {
    clock,
    record,
    disk,
    sizes,
    holdNext,
    ordered: ordered.promise,
    looked: looked.promise,
    answer: answered.resolve,
  };
}

test('of two limits at once the later one is set and remembered, whichever is answered first', async () => {
  const { sizes, record, disk, holdNext, ordered, answer } = rig();
  holdNext();
  const first = sizes.setLimit(record, 1_000);
  await ordered;
  const second = sizes.setLimit(record, 2_000);
  answer();
  await Promise.all([first, second]);
  expect(disk.limitBytes).toBe(2_000 - begun.foreignBytes);
  expect(await sizes.ofWritable(record)).toMatchObject({ limitBytes: 2_000 });
});

test('a look that finds more room does not take back a limit that is being set', async () => {
  const { sizes, record, disk, clock, holdNext, ordered, looked, answer } = rig();
  await sizes.setLimit(record, 1_000);
  clock.step(60_000);
  disk.olderBytes = 100;
  holdNext();
  const setting = sizes.setLimit(record, 2_000);
  await ordered;
  const looking = sizes.maintain();
  await looked;
  answer();
  await Promise.all([setting, looking]);
  // What is foreign has become less, so more may be charged: 1,900 of 2,000.
  expect(disk.limitBytes).toBe(1_900);
  expect(await sizes.ofWritable(record)).toMatchObject({ limitBytes: 2_000 });
});
