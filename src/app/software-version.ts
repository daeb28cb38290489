/** The version in package.json, which is two folders up from here in a checkout and in the package. */
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';

export async function softwareVersion(): Promise<string> {
  const path = join(dirname(dirname(import.meta.dirname)), 'package.json');
  return z.object({ version: z.string() }).parse(JSON.parse(await readFile(path, 'utf8'))).version;
}
