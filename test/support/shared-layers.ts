/**
 * One host template for the whole run of `real` tests: building it takes seconds, and nodes may share it. Nodes find it by ATOLL_LAYERS
 * (node-harness.ts); it is built by the first that needs it, and gone at the end.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

let directory: string | undefined;

export async function setup(): Promise<void> {
  directory = await mkdtemp(join(tmpdir(), 'atoll-layers-'));
  process.env['ATOLL_LAYERS'] = directory;
}

export async function teardown(): Promise<void> {
  delete process.env['ATOLL_LAYERS'];
  if (directory !== undefined) await rm(directory, { recursive: true, force: true });
}
