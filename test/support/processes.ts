/** What tests of processes have in common. */
import type { OutputItem, Process, Sandbox } from '../../src/sdk/index.ts';

/** Everything a process wrote, to the end of its tree. */
export async function outputOf(process: Process): Promise<{ stdout: string; stderr: string; kinds: string[] }> {
  return textOf(await all(process.output()));
}

export async function all(items: AsyncIterable<OutputItem>): Promise<OutputItem[]> {
  const found: OutputItem[] = [];
  for await (const item of items) found.push(item);
  return found;
}

export function textOf(items: readonly OutputItem[]): { stdout: string; stderr: string; kinds: string[] } {
  const bytesOf = (stream: 'stdout' | 'stderr') =>
    Buffer.concat(items.flatMap((item) => (item.kind === 'output' && item.stream === stream ? [item.bytes] : [])));
  return {
    stdout: bytesOf('stdout').toString(),
    stderr: bytesOf('stderr').toString(),
    kinds: items.filter((item) => item.kind !== 'output').map((item) => item.kind),
  };
}

/** Items until `isLast` holds; the reading ends there. */
export async function until(
  items: AsyncIterable<OutputItem>,
  isLast: (text: { stdout: string; stderr: string }) => boolean,
): Promise<OutputItem[]> {
  const found: OutputItem[] = [];
  for await (const item of items) {
    found.push(item);
    if (isLast(textOf(found))) break;
  }
  return found;
}

/** A shell text that goes on when the file is there. */
export function waitForFile(path: string): string {
  return `while [ ! -e ${path} ]; do sleep 0.02; done`;
}

export async function touch(sandbox: Sandbox, path: string): Promise<void> {
  await sandbox.exec(['touch', path]);
}
