/** Init with the compiler's sanitizers in it. */
import { execFile } from 'node:child_process';
import { copyFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { keptBuild } from './kept-build.ts';

const native = join(import.meta.dirname, '../../native');

/** Puts it at `target`, where everybody in the test may reach it. */
export async function copySanitizedInit(target: string): Promise<void> {
  const names = (await readdir(native, { recursive: true })).filter((name) => /\.(c|h|sh)$/.test(name)).sort();
  const program = await keptBuild({
    name: 'atoll-init-sanitized',
    sources: names.map((name) => join(native, name)),
    build: (output) => promisify(execFile)('sh', [join(native, 'build.sh'), '--sanitize', output]),
  });
  await copyFile(program, target);
}
