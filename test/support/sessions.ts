/** What tests of sessions have in common. */
import type { Sandbox, Session } from '../../src/sdk/index.ts';

/** What the text writes to stdout. A failure of it is one of the test. */
export async function say(session: Session, text: string): Promise<string> {
  const { stdout, stderr, exitCode } = await session.exec(text);
  if (exitCode !== 0) throw new Error(`"${text}" ended with ${exitCode}: ${stderr}`);
  return stdout;
}

/** Begins a command that runs until `release`, or until somebody makes the file `go`; resolves when it runs. */
export async function holdBusy(sandbox: Sandbox, session: Session) {
  const go = `/tmp/go-${crypto.randomUUID()}`;
  const result = session.exec(`touch ${go}.runs; while [ ! -e ${go} ]; do sleep 0.02; done; echo released`);
  result.catch(() => {});
  await sandbox.exec(`while [ ! -e ${go}.runs ]; do sleep 0.02; done`);
  return { result, go, release: () => sandbox.exec(['touch', go]) };
}
