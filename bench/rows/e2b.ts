/** From nothing to the end of the first command through E2B's own SDK, against ours on the same server. */
import { Sandbox } from 'e2b';
import { againstPeer, figure } from '../finding.ts';
import { interleave } from '../interleave.ts';
import type { Row } from '../row.ts';
import { startPlatform } from '../start.ts';

const rounds = 60;

export const e2bRow: Row = {
  name: 'e2b',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    const { url } = platform.server;
    const options = { apiKey: platform.key.replace('atoll_', 'e2b_'), apiUrl: url, sandboxUrl: url };
    const e2b = async () => {
      const startedAt = performance.now();
      const sandbox = await Sandbox.create('base', options);
      await sandbox.commands.run('true');
      const ms = performance.now() - startedAt;
      await sandbox.kill();
      return ms;
    };
    const own = async () => {
      const startedAt = performance.now();
      const sandbox = await platform.client.sandboxes.create();
      // As E2B's SDK does it: by a login shell, and as a process with a life.
      const process = await sandbox.processes.start(['/bin/bash', '-l', '-c', 'true']);
      await process.wait();
      const ms = performance.now() - startedAt;
      await sandbox.delete();
      return ms;
    };
    const samples = await interleave({ e2b, own }, { rounds, warmups: 3 });
    const name = "create → first command done, through E2B's SDK";
    return [againstPeer(figure(name, samples.e2b), figure('our own SDK', samples.own), { atMost: 1.5 })];
  },
};
