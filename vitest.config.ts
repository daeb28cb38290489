import { defineConfig } from 'vitest/config';

/**
 * Two kinds of tests. `unit` needs nothing but Node and runs in parallel. `real` makes sandboxes on this machine: its files
 * run one after another, because they share the machine's processes, mounts and groups and count them.
 */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['src/**/*.test.ts', 'test/*.test.ts'],
          setupFiles: ['test/support/check-lock-order.ts'],
          testTimeout: 20_000,
        },
      },
      {
        test: {
          name: 'real',
          include: ['test/{contract,e2e,faults,security}/**/*.test.ts'],
          setupFiles: ['test/support/check-lock-order.ts'],
          globalSetup: ['test/support/shared-layers.ts'],
          fileParallelism: false,
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
    ],
  },
});
