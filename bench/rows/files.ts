/** Files through the SDK, large and small, against Node's own fs on the same disk. Neither side syncs. */
import { join } from 'node:path';
import { againstPeer, figure } from '../finding.ts';
import { interleave } from '../interleave.ts';
import type { Row } from '../row.ts';
import { startPlainPeer, startSdkLoad } from '../start.ts';

const large = { bytes: 10_000_000, rounds: 30, warmups: 5 };
const small = { bytes: 1_000, rounds: 300, warmups: 50 };

export const filesRow: Row = {
  name: 'files',
  run: async (scope) => {
    const { load } = await startSdkLoad(scope);
    const peer = await startPlainPeer(scope);
    const there = (bytes: number) => ({ path: `/bench-${bytes}`, bytes });
    const here = (bytes: number) => ({ path: join(scope.directory, `plain-${bytes}`), bytes });
    const times = await interleave(
      {
        write: () => load.run('write', there(large.bytes)),
        read: () => load.run('read', there(large.bytes)),
        plainWrite: () => peer.run('write', here(large.bytes)),
        plainRead: () => peer.run('read', here(large.bytes)),
        send: () => peer.run('send', { bytes: large.bytes }),
        receive: () => peer.run('receive', { bytes: large.bytes }),
      },
      large,
    );
    const smallTimes = await interleave(
      {
        write: () => load.run('write', there(small.bytes)),
        read: () => load.run('read', there(small.bytes)),
        plainWrite: () => peer.run('writeAndRoundTrip', here(small.bytes)),
        plainRead: () => peer.run('readAndRoundTrip', here(small.bytes)),
      },
      small,
    );
    const written = figure('file write, 10 MB', times.write);
    const read = figure('file read, 10 MB', times.read);
    return [
      againstPeer(written, figure('fs', times.plainWrite), { atMost: 3 }),
      againstPeer(written, figure('HTTP alone, fetch to a server that drops it', times.send)),
      againstPeer(read, figure('fs', times.plainRead), { atMost: 2.5 }),
      againstPeer(read, figure('HTTP alone, fetch of a buffer', times.receive)),
      againstPeer(
        figure('file write, 1 KB', smallTimes.write),
        figure('fs and one HTTP round trip', smallTimes.plainWrite),
        { atMost: 2 },
      ),
      againstPeer(
        figure('file read, 1 KB', smallTimes.read),
        figure('fs and one HTTP round trip', smallTimes.plainRead),
        { atMost: 2 },
      ),
    ];
  },
};
