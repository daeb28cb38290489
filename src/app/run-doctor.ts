/** Tries what this machine can do. Nothing of it is left behind. */
import { mkdir } from 'node:fs/promises';
import { runDoctor as examine, type Finding } from '../isolation/index.ts';
import { defaultDataDirectory } from './data-directory.ts';
import { ensureNativeInit } from './native-init.ts';

export interface Diagnosis {
  /** Every required guard works. */
  readonly ok: boolean;
  readonly checks: readonly Finding[];
}

export async function runDoctor(options: { readonly dataDirectory?: string } = {}): Promise<Diagnosis> {
  const dataDirectory = options.dataDirectory ?? defaultDataDirectory();
  let initProgram: string;
  try {
    initProgram = await ensureNativeInit();
    await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return {
      ok: false,
      checks: [{ name: 'set-up', ok: false, required: true, message, fix: 'apt-get install gcc libc6-dev' }],
    };
  }
  const checks = await examine({ dataDirectory, initProgram });
  return { ok: checks.every((check) => check.ok || !check.required), checks };
}
