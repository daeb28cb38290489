/** Packages of templates: what their source has not signed is refused before anything of it is unpacked. The control is the same source untouched. */
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { SystemClock } from '../../src/base/index.ts';
import { AptPackages } from '../../src/layers/index.ts';
import { debianRepository } from '../support/debian-repository.ts';
import { requires, testWith } from '../support/requires.ts';
import { buildLimitMs } from '../support/templates.ts';

const test = testWith(requires.root, requires.program('apt-get'), requires.program('gpg'));

let home: string;
let repository: string;
const signal = new AbortController().signal;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'atoll-packages-'));
  repository = dirname(await debianRepository());
}, buildLimitMs);
afterAll(() => rm(home, { recursive: true }));

/** A repository of the test's own, which `bend` may change, and what bringing packages from it says. */
async function bring(name: string, bend: (copy: string) => Promise<void>): Promise<number> {
  const copy = join(home, name);
  await cp(repository, copy, { recursive: true });
  const sources = join(copy, 'apt/sources.list.d/test.sources');
  await writeFile(sources, (await readFile(sources, 'utf8')).replaceAll(repository, copy));
  await bend(copy);
  const directory = join(home, `${name}-state`);
  const apt = new AptPackages({ directory, configuration: join(copy, 'apt'), clock: new SystemClock() });
  const { essential, others } = await apt.bring(['file'], { say: () => {}, signal });
  return essential.length + others.length;
}

test('packages of a source that is as it was signed are brought', async () => {
  expect(await bring('whole', async () => {})).toBeGreaterThan(50);
});

test('a package that was changed is refused', async () => {
  const changed = bring('package', async (copy) => {
    const pool = join(copy, 'pool');
    const name = (await readdir(pool)).find((file) => file.startsWith('bash_'))!;
    const bytes = await readFile(join(pool, name));
    bytes[bytes.byteLength - 1]! ^= 1;
    await writeFile(join(pool, name), bytes);
  });
  await expect(changed).rejects.toMatchObject({
    code: 'packages_unavailable',
    message: expect.stringContaining('bash_'),
  });
});

test('a list of packages that was changed is refused', async () => {
  const changed = bring('list', async (copy) => {
    const path = join(copy, 'Packages');
    await writeFile(path, (await readFile(path, 'utf8')).replace('Package: file\n', 'Package: file\nX-Changed: yes\n'));
  });
  await expect(changed).rejects.toMatchObject({ code: 'packages_unavailable' });
});

test('a source without a signature by its key is refused', async () => {
  const unsigned = bring('unsigned', async (copy) => {
    await cp(join(copy, 'Release'), join(copy, 'InRelease'));
  });
  await expect(unsigned).rejects.toMatchObject({ code: 'packages_unavailable' });
});
