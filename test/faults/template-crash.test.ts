/** A server that is killed at every durable step of a build: afterwards there is the template or nothing of it, and what was there works. */
import { execFile } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import { impatient, patience } from '../support/crashes.ts';
import { debianRepository } from '../support/debian-repository.ts';
import { findLeftovers, nothingLeft } from '../support/node-leftovers.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';
import { buildLimitMs, definitionOf } from '../support/templates.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('apt-get'), requires.program('gpg'));

let platform: Platform;
let layers: string;
let baseLayers: readonly string[];

const templateLayers = async () =>
  (await readdir(layers)).filter((name) => name.startsWith('template-') && name !== 'template-names').sort();

beforeAll(async () => {
  process.env['ATOLL_APT'] = await debianRepository();
  const shared = process.env['ATOLL_LAYERS'];
  // Layers of its own: what is shared is never collected.
  delete process.env['ATOLL_LAYERS'];
  platform = await Platform.start();
  layers = join(platform.nodeDirectory, 'layers');
  // What an earlier test of this run has built need not be built again.
  for (const name of shared === undefined ? [] : await readdir(shared)) {
    if (/^(host|template)-[0-9a-f]+$/.test(name)) await promisify(execFile)('cp', ['-a', join(shared!, name), layers]);
  }
  await (await platform.client.templates.build('base', { kind: 'base' })).wait();
  baseLayers = await templateLayers();
  expect(baseLayers).toHaveLength(3);
}, buildLimitMs);
afterAll(() => platform.close());

const points = [
  ['node-after-spawn', 'nothing'],
  ['template-before-layer', 'nothing'],
  ['template-after-layer', 'nothing'],
  ['template-before-name', 'nothing'],
  ['template-after-name', 'everything'],
  ['template-after-name>template-before-collect', 'everything'],
] as const;

for (const [point, left] of points) {
  test(`killed at ${point}: ${left} of it is there afterwards, and base is whole`, async () => {
    await platform.restartServer(`${point}=crash`);
    const source = definitionOf({ from: 'base', steps: [{ run: `echo '${point}' > mark` }] });
    const build = await impatient(platform).templates.build('cut', source);
    await platform.server.died;
    await platform.startServer();
    const { templates, sandboxes } = platform.client;

    expect((await templates.findBuild(build.id)).view).toMatchObject({
      state: 'failed',
      error: { code: 'build_cancelled' },
    });
    await vi.waitFor(async () => expect(await findLeftovers(platform.nodeDirectory)).toEqual(nothingLeft), patience);
    if (left === 'nothing') {
      await expect(templates.get('cut')).rejects.toMatchObject({ code: 'template_not_found' });
      expect(await templateLayers()).toEqual(baseLayers);
      await using whole = await sandboxes.create({ template: 'base' });
      expect((await whole.exec('sudo -n true && git --version')).exitCode).toBe(0);
      return;
    }
    expect(await templateLayers()).toHaveLength(baseLayers.length + 1);
    const made = await sandboxes.create({ template: 'cut' });
    // Its files stay as long as it does, named or not.
    await templates.remove('cut');
    expect((await made.exec('cat mark')).stdout).toBe(`${point}\n`);
    expect(await templateLayers()).toHaveLength(baseLayers.length + 1);
    await made.delete();
    await vi.waitFor(async () => expect(await templateLayers()).toEqual(baseLayers), patience);
  });
}

test('a build that fails or is cancelled leaves none of its layers', async () => {
  const { templates } = platform.client;
  const steps = [{ run: 'echo one > one' }, { run: 'exit 1' }];
  const failing = await templates.build('failing', definitionOf({ from: 'base', steps }));
  await expect(failing.wait()).rejects.toMatchObject({ code: 'build_step_failed' });
  expect(await templateLayers()).toEqual(baseLayers);
  const slow = await templates.build(
    'slow',
    definitionOf({ from: 'base', steps: [steps[0], { run: 'echo begun; sleep 600' }] }),
  );
  for await (const item of slow.log()) if (item.kind === 'log' && item.text.includes('begun')) break;
  expect(await templateLayers()).toHaveLength(baseLayers.length + 1);
  await slow.cancel();
  expect(await templateLayers()).toEqual(baseLayers);
  expect(await findLeftovers(platform.nodeDirectory)).toEqual(nothingLeft);
});
