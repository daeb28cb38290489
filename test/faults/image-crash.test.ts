/** A process that is killed while it unpacks an image leaves the directory that its caller discards, and nothing else. */
import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, vi } from 'vitest';
import { unpackImage } from '../../src/layers/index.ts';
import { buildImage, writeLayout } from '../support/image-builder.ts';
import { requires, testWith } from '../support/requires.ts';
import { buildTar } from '../support/tar-builder.ts';

const root = join(import.meta.dirname, '../..');
const program = join(root, 'native/atoll-init');
const waitMs = 30_000;

/** Unpacks until it is told about the second layer, and then hangs, so that it is killed in the middle. */
const worker = `
import { unpackImage } from ${JSON.stringify(join(root, 'src/layers/index.ts'))};
const [layout, directory, program] = process.argv.slice(1);
await unpackImage({ kind: 'layout', directory: layout }, { directory, program, onProgress: ({ layer }) => {
  if (layer !== 2) return;
  process.stdout.write('in the middle\\n');
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
} });
`;

testWith(requires.root, requires.compiler)('kill -9 in the middle of unpacking leaves only the directory', async () => {
  const home = await mkdtemp(join(tmpdir(), 'atoll-images-'));
  try {
    const layers = [1, 2, 3].map((at) => buildTar([{ name: `f${at}`, content: randomBytes(2 * 1024 * 1024) }]));
    const layout = join(home, 'layout');
    const directory = join(home, 'tree');
    await writeLayout(layout, buildImage(layers));
    const words = ['--input-type=module', '-e', worker, layout, directory, program];
    const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] });
    const closed = once(child, 'close');
    await once(child.stdout, 'data');
    child.kill('SIGKILL');
    await closed;

    await vi.waitFor(() => expect(unpackers(directory)).resolves.toEqual([]), { timeout: waitMs });
    expect((await readdir(home)).sort()).toEqual(['layout', 'tree']);
    // Whoever finds it cannot take it for a tree: a second attempt is refused until it is gone.
    const again = () => unpackImage({ kind: 'layout', directory: layout }, { directory, program });
    await expect(again()).rejects.toMatchObject({ code: 'EEXIST' });
    await rm(directory, { recursive: true });
    await expect(again()).resolves.toMatchObject({ layers: 3, entries: 3 });
    expect((await readdir(directory)).sort()).toEqual(['f1', 'f2', 'f3']);
  } finally {
    await rm(home, { recursive: true, force: true });
  }
});

async function unpackers(directory: string): Promise<string[]> {
  const { stdout } = await promisify(execFile)('ps', ['-eo', 'args']);
  return stdout.split('\n').filter((line) => line.startsWith(program) && line.includes(directory));
}
