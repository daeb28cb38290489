/** Init with the compiler's sanitizers in it. Building it takes many seconds, so it is kept in build/, by the content of its sources. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

const root = dirname(dirname(import.meta.dirname));
const native = join(root, 'native');
const place = join(root, 'build');
const prefix = 'atoll-init-sanitized-';

/** Puts it at `target`, where everybody in the test may reach it. */
export async function copySanitizedInit(target: string): Promise<void> {
  const built = join(place, `${prefix}${await fingerprint()}`);
  if (!existsSync(built)) {
    await mkdir(place, { recursive: true });
    const earlier = (await readdir(place)).filter((name) => name.startsWith(prefix));
    // It appears by rename: two that build it at once do no harm.
    await promisify(execFile)('sh', [join(native, 'build.sh'), '--sanitize', built]);
    for (const name of earlier) await rm(join(place, name), { force: true });
  }
  await copyFile(built, target);
}

async function fingerprint(): Promise<string> {
  const hash = createHash('sha256');
  const names = (await readdir(native, { recursive: true })).filter((name) => /\.(c|h|sh)$/.test(name)).sort();
  for (const name of names) hash.update(`${name}\n`).update(await readFile(join(native, name)));
  return hash.digest('hex').slice(0, 16);
}
