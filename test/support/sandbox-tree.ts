/** Where the files of a sandbox are on this machine, for tests that look from outside. Its node keeps them in plain directories. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The tree that shows what the sandbox itself has written below `/`. */
export function ownTreeOf(nodeDirectory: string, sandboxId: string): string {
  const text = readFileSync(join(nodeDirectory, 'sandboxes', sandboxId, 'record.json'), 'utf8');
  const { writable } = JSON.parse(text) as { writable: string };
  return join(nodeDirectory, 'storage', 'writable', writable, 'data', 'upper');
}
