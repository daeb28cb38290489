/** Programs that tests compile, kept in build/ by the content of what they are made of: hundreds of tests need them. */
import { createHash, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';

const place = join(dirname(dirname(import.meta.dirname)), 'build');

export interface BuildOrder {
  readonly name: string;
  readonly sources: readonly string[];
  /** Makes the program at `output`. */
  readonly build: (output: string) => Promise<unknown>;
}

/** Where the program is. Several that ask at once may each build it, and do no harm. */
export async function keptBuild({ name, sources, build }: BuildOrder): Promise<string> {
  const hash = createHash('sha256');
  for (const path of sources) hash.update(`${path}\n`).update(await readFile(path));
  const program = join(place, `${name}-${hash.digest('hex').slice(0, 16)}`);
  if (existsSync(program)) return program;
  await mkdir(place, { recursive: true });
  const earlier = (await readdir(place)).filter((entry) => new RegExp(`^${name}-[0-9a-f]{16}$`).test(entry));
  const unfinished = join(place, `making-${name}-${randomBytes(8).toString('hex')}`);
  try {
    await build(unfinished);
    await rename(unfinished, program);
  } finally {
    await rm(unfinished, { force: true });
  }
  // Not the one that another has just finished.
  for (const entry of earlier) if (join(place, entry) !== program) await rm(join(place, entry), { force: true });
  return program;
}
