/**
 * Bundles the programs that tests start hundreds of times, once for the whole run: a server then starts with half of the work, because it loads a dozen
 * files instead of a thousand. `programPath` finds them. A bundle is named by its content and keeps beside it what Node compiles of it,
 * so the next run of the same sources starts warm. Where lines are counted, programs run from their sources.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { build, type Rolldown } from 'vite';
import { bundledName, bundledPrograms } from './program-path.ts';

const root = dirname(dirname(import.meta.dirname));
const place = join(root, 'build');
const prefix = 'programs-';
/** A bundle that was not used for this long goes. */
const keptMs = 24 * 60 * 60_000;

export async function setup(): Promise<void> {
  // Every project of a run asks for it.
  if (process.env['ATOLL_TEST_PROGRAMS'] !== undefined || process.env['NODE_V8_COVERAGE'] !== undefined) return;
  const files = await bundle();
  const hash = createHash('sha256');
  for (const { fileName, code } of files) hash.update(`${fileName} ${code.length}\n${code}`);
  // As deep below the root as the sources: some find the root from where they are.
  const directory = join(place, `${prefix}${hash.digest('hex').slice(0, 16)}`);
  if (!existsSync(directory)) await write(directory, files);
  await utimes(directory, new Date(), new Date());
  await removeOld();
  process.env['ATOLL_TEST_PROGRAMS'] = directory;
  process.env['NODE_COMPILE_CACHE'] = join(directory, 'compiled');
}

async function bundle(): Promise<Rolldown.OutputChunk[]> {
  const input = Object.fromEntries(bundledPrograms.map((source) => [bundledName(source), join(root, source)]));
  const output = { format: 'es', entryFileNames: '[name]', chunkFileNames: '[name]-[hash].mjs' } as const;
  const built = (await build({
    root,
    configFile: false,
    envDir: false,
    publicDir: false,
    logLevel: 'warn',
    ssr: { noExternal: true, target: 'node' },
    build: { ssr: true, write: false, minify: false, target: 'esnext', rolldownOptions: { input, output } },
  })) as Rolldown.RolldownOutput;
  return built.output.filter((file) => file.type === 'chunk');
}

/** Whole under its name, or not at all: other runs look for it too. */
async function write(directory: string, files: readonly Rolldown.OutputChunk[]): Promise<void> {
  await mkdir(place, { recursive: true });
  const unfinished = await mkdtemp(join(place, 'making-programs-'));
  try {
    for (const { fileName, code } of files) await writeFile(join(unfinished, fileName), code);
    await rename(unfinished, directory).catch((error: unknown) => {
      if (!existsSync(directory)) throw error;
    });
  } finally {
    await rm(unfinished, { recursive: true, force: true });
  }
}

async function removeOld(): Promise<void> {
  for (const name of (await readdir(place)).filter((entry) => entry.startsWith(prefix))) {
    const path = join(place, name);
    const { mtimeMs } = await stat(path);
    if (mtimeMs < Date.now() - keptMs) await rm(path, { recursive: true, force: true });
  }
}
