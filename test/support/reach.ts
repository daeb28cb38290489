/** Connects from inside a sandbox, with nothing but bash. */
import type { Sandbox } from '../../src/sdk/index.ts';
import { world } from './test-world.ts';

/** A refusal that is silent takes this long to be noticed. */
const patienceSeconds = 4;

/** What the server at the address says; undefined: it was not reached. */
export async function reach(sandbox: Sandbox, host: string, port: number = world.port): Promise<string | undefined> {
  const script = `exec 3<>/dev/tcp/${host}/${port} && cat <&3`;
  const { exitCode, stdout } = await sandbox.exec(['timeout', String(patienceSeconds), 'bash', '-c', script]);
  return exitCode === 0 ? stdout : undefined;
}
