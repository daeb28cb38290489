/**
 * One place for templates in a whole run of the `real` tests: the host template is built once, not once per node. Nodes of tests
 * find it in ATOLL_LAYERS, as servers do.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export default async function shareLayers(): Promise<() => Promise<void>> {
  const directory = await mkdtemp(join(tmpdir(), 'atoll-layers-'));
  process.env['ATOLL_LAYERS'] = directory;
  return () => rm(directory, { recursive: true, force: true });
}
