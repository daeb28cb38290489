/** From nothing to the end of the first command through E2B's own SDK, against ours on the same server. */
import { Sandbox } from 'e2b';
import type { Sandbox as OwnSandbox } from '../../src/sdk/index.ts';
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
    const ownBy = (run: (sandbox: OwnSandbox) => Promise<unknown>) => async () => {
      const startedAt = performance.now();
      const sandbox = await platform.client.sandboxes.create();
      await run(sandbox);
      const ms = performance.now() - startedAt;
      await sandbox.delete();
      return ms;
    };
    const own = ownBy((sandbox) => sandbox.exec('true'));
    // What E2B's SDK asks for: a login shell, as a process with a life.
    const alike = ownBy(async (sandbox) => {
      const process = await sandbox.processes.start(['/bin/bash', '-l', '-c', 'true']);
      await process.wait();
    });
    const samples = await interleave({ e2b, own, alike }, { rounds, warmups: 3 });
    const through = figure("create → first command done, through E2B's SDK", samples.e2b);
    return [
      againstPeer(through, figure("our own SDK, exec('true')", samples.own), { atMost: 1.5 }),
      againstPeer(through, figure('our own SDK, a login shell as a process', samples.alike)),
    ];
  },
};
