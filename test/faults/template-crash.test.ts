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

/** Killed with a life that is there and a start command that is not, or not ready. */
const startPoints = [
  ['create', 'node-create-before-answer'],
  ['create', 'node-start-command-begun'],
  ['start', 'node-start-before-answer'],
] as const;

for (const [call, point] of startPoints) {
  test(`killed at ${point}: the sandbox that is there has its start command, begun once`, async () => {
    const { templates, sandboxes } = platform.client;
    const command = 'echo begun >> /root/begun; touch /root/ready; exec sleep 1000';
    const start = { command, ready: { command: 'test -e /root/ready' } };
    await (await templates.build('started', definitionOf({ from: 'base', user: 'root', start }))).wait();
    const name = `${point}-made`;
    if (call === 'start') await (await sandboxes.create({ name, template: 'started' })).stop();

    await platform.restartServer(`${point}=crash`);
    const idOf = async () => {
      const { items } = await platform.client.sandboxes.list();
      return items.find((one) => one.name === name)!.id;
    };
    const hasty = impatient(platform).sandboxes;
    const cut =
      call === 'create' ? hasty.create({ name, template: 'started' }) : (await hasty.connect(await idOf())).start();
    await Promise.all([expect(cut).rejects.toThrow(), platform.server.died]);
    await platform.startServer();

    const find = async () => platform.client.sandboxes.connect(await idOf());
    await vi.waitFor(async () => expect(await find()).toMatchObject({ state: 'running' }), patience);
    const made = await find();
    await vi.waitFor(async () => expect((await made.processes.get('start')).view.running).toBe(true), patience);
    const { items } = await made.processes.list();
    expect(items.map((process) => process.name)).toEqual(['start']);
    const begun = call === 'create' ? 'begun\n' : 'begun\nbegun\n';
    await vi.waitFor(async () => expect((await made.exec('cat /root/begun')).stdout).toBe(begun), patience);
    await made.delete();
    await platform.client.templates.remove('started');
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
