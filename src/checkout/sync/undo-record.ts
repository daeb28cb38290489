/**
 * What `undo` takes back: the last change that one of our commands made in the checkout. There is one record per checkout; the next change replaces
 * it, an undo removes it. The content is in the shadow's objects, which stay as long as the record names them.
 */
import { readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileDurably } from '../../base/index.ts';
import type { BranchMove } from './branch-move.ts';
import type { Checkout } from './checkout.ts';
import type { TreeChange } from './trees.ts';

/** A pull: what it changed in the working tree, from what to what, and where it moved the branch. */
export interface PullUndo {
  readonly version: 1;
  readonly kind: 'pull';
  readonly sandboxId: string;
  /** The whole working tree before it, so that its content is kept. */
  readonly before: string;
  readonly changes: readonly TreeChange[];
  readonly branch: BranchMove | null;
}

/** By what made the change. Each kind carries `changes`, `before` and `branch` of the checkout that its record lies with. */
export type UndoRecord = PullUndo;

export async function readUndo(
  checkout: Checkout,
): Promise<{ readonly record: UndoRecord; readonly madeAt: Date } | undefined> {
  try {
    const [text, { mtime }] = await Promise.all([readFile(pathOf(checkout), 'utf8'), stat(pathOf(checkout))]);
    const record = JSON.parse(text) as UndoRecord;
    return record.version === 1 ? { record, madeAt: mtime } : undefined;
  } catch {
    return undefined; // Absent: nothing was changed here, or it was taken back.
  }
}

export async function writeUndo(checkout: Checkout, record: UndoRecord | null): Promise<void> {
  if (record === null) await rm(pathOf(checkout), { force: true });
  else await writeFileDurably(pathOf(checkout), JSON.stringify(record));
}

function pathOf(checkout: Checkout): string {
  return join(checkout.directory, 'undo.json');
}
