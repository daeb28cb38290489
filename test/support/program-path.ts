/** Where a program that tests start is: in the bundle of the run (bundle-programs.ts), or, where there is none, as it stands in the repository. */
import { basename, dirname, join } from 'node:path';

const root = dirname(dirname(import.meta.dirname));

export const bundledPrograms = [
  'src/cli/main.ts',
  'test/support/apply-worker.ts',
  'test/support/check-lock-order.ts',
  'test/support/delete-sandboxes-program.ts',
  'test/support/layer-worker.ts',
  'test/support/node-process.ts',
  'test/support/workspace-worker.ts',
  'test/support/world-bridge.ts',
  'test/support/world-server.ts',
] as const;

export function programPath(source: (typeof bundledPrograms)[number]): string {
  const directory = process.env['ATOLL_TEST_PROGRAMS'];
  return directory === undefined ? join(root, source) : join(directory, bundledName(source));
}

export function bundledName(source: string): string {
  return `${basename(source, '.ts')}.mjs`;
}
