/**
 * The peer outside: one container per command on the same skeleton and the same /usr. Measured only where it is installed.
 * Its runtime refuses a machine with both versions of cgroups mounted, so there it gets a mount namespace without the second.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { promisify } from 'node:util';
import { HostTemplate } from '../src/layers/index.ts';
import type { Scope } from './row.ts';
import { layersDirectoryOf } from './start.ts';

const hybridMount = '/sys/fs/cgroup/unified';
const withoutHybrid = ['-m', 'sh', '-c', `umount ${hybridMount}; exec "$@"`, 'sh'];
const execute = promisify(execFile);

export interface Podman {
  /** From nothing to the end of a command, as `create` does it. */
  run(): Promise<void>;
}

export async function findPodman(scope: Scope): Promise<Podman | undefined> {
  const found = await execute('podman', ['--version']).catch(() => undefined);
  if (found === undefined) return undefined;
  const { layers } = await new HostTemplate({ directory: layersDirectoryOf(scope.directory) }).ensure();
  const limits = [
    '--ulimit',
    'nofile=4096:4096',
    '--ulimit',
    'nproc=4096:4096',
    '--memory',
    '2g',
    '--pids-limit',
    '1024',
  ];
  // `:O` puts a writable overlay on the tree, as a sandbox has one.
  const options = ['run', '--rm', '--network', 'none', ...limits, '-v', '/usr:/usr:ro', '--rootfs', `${layers[0]}:O`];
  const [program, before] = existsSync(hybridMount) ? ['unshare', withoutHybrid] : ['env', []];
  return {
    run: async () => {
      await execute(program, [...before, 'podman', ...options, 'true']);
    },
  };
}
