/**
 * Builds dist/, what the published package runs: Node does not strip types inside node_modules. Only `npm pack` needs it; a
 * checkout runs its sources as they are. Everything is made new, so nothing of an earlier build is published.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, rmSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';

const root = dirname(import.meta.dirname);
const dist = join(root, 'dist');

rmSync(dist, { recursive: true, force: true });
const compiled = spawnSync(join(root, 'node_modules', '.bin', 'tsc'), ['-p', 'tsconfig.build.json'], {
  cwd: root,
  // npm reads what a pack script prints on stdout as part of its own answer (`npm pack --json`).
  stdio: ['ignore', 2, 2],
});
if (compiled.error) throw compiled.error;
if (compiled.status === 0) {
  // What is no TypeScript is read at run time from beside the code.
  cpSync(join(root, 'src'), dist, {
    recursive: true,
    filter: (path) => statSync(path).isDirectory() || !path.endsWith('.ts'),
  });
} else {
  rmSync(dist, { recursive: true, force: true });
  process.exitCode = 1;
}
