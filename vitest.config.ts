import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

// Tests start hundreds of servers and command lines: what Node compiles of them is kept. Where lines are counted it would be less exact.
if (process.env['NODE_V8_COVERAGE'] === undefined) {
  process.env['NODE_COMPILE_CACHE'] ??= join(import.meta.dirname, 'build', 'compiled');
}

/** Files that use up what all share: here memory, processes and watches of files. */
const alone = ['test/security/limits.test.ts'];

/** vitest would leave a core to itself, which is one of two on a small machine. */
const cores = Math.max(2, availableParallelism());
/** Of files that make sandboxes; more would wait for each other. */
const filesAtOnce = Math.min(4, cores);

const ofSandboxes = {
  setupFiles: ['test/support/check-lock-order.ts'],
  globalSetup: ['test/support/whole-run.ts', 'test/support/bundle-programs.ts'],
  testTimeout: 60_000,
  hookTimeout: 60_000,
};

/**
 * Three kinds of tests. `unit` needs nothing but Node. `real` makes sandboxes on this machine: each file has data directories of its own, and with
 * them groups, mounts, ids and networks, so that a few files run at once. `alone` is what cannot: one file after another.
 */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['src/**/*.test.ts', 'test/*.test.ts'],
          setupFiles: ['test/support/check-lock-order.ts'],
          maxWorkers: cores,
          testTimeout: 20_000,
        },
      },
      {
        test: {
          ...ofSandboxes,
          name: 'real',
          include: ['test/{contract,e2e,faults,security}/**/*.test.ts'],
          exclude: alone,
          maxWorkers: filesAtOnce,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: { ...ofSandboxes, name: 'alone', include: alone, fileParallelism: false, sequence: { groupOrder: 2 } },
      },
    ],
  },
});
