/**
 * The journals of applies and undos: one folder each in the state folder, named so that they sort by time.
 *
 *   preparing --every target ready--> decided --every target settled--> finished
 *       |                                                                  |
 *       +--refused, or the process died--> removed                         +--old, or more than are kept--> removed
 *
 *   preparing   Only staging folders, lock files and refs of our own exist; the journal leads to each of them.
 *   decided     The changes are made, by whoever comes first; nothing is asked any more.
 *   finished    The record that an undo needs.
 *
 * A journal is replaced whole, and its first line has the version and the checksum of the rest: one that was cut or altered is never believed.
 */
import { createHash, randomBytes } from 'node:crypto';
import { chmod, mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { syncDirectory, writeFileDurably } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import type { Checkout } from '../sync/checkout.ts';
import type { TreeChange } from '../sync/trees.ts';
import type { Flip } from './flip.ts';
import type { AppliedPlan, TargetConflict } from './plan-target.ts';
import type { ProcessOwner } from './runner-lock.ts';

/** Permissions and owner of a file; git knows only whether it can be executed. */
export interface DiskFacts {
  readonly perm: number;
  /** null: whoever applies. */
  readonly owner: readonly [uid: number, gid: number] | null;
}

export interface FileStep extends TreeChange {
  /** How the path looked when it was prepared. */
  readonly stamp: string;
  /** null where there is no file before or after. */
  readonly was: DiskFacts | null;
  readonly becomes: DiskFacts | null;
}

export interface DirectoryStep {
  readonly name: string;
  readonly perm: number;
}

/** null: the branch has no commit. */
export interface RefMove {
  readonly ref: string;
  readonly from: string | null;
  readonly to: string | null;
}

/**
 * pending          not yet its turn, or in the middle of it
 * applied          it has its changes
 * unchanged        it had them before
 * conflictPending  it was changed between the decision and its turn, and stands as it was then
 * undone           it is as it was before
 */
export type JournalTargetState =
  | { readonly kind: 'pending' | 'applied' | 'unchanged' | 'undone' }
  | { readonly kind: 'conflictPending'; readonly conflicts: readonly TargetConflict[]; readonly message: string };

export interface JournalTarget {
  readonly workspaceId: string;
  readonly workspace: string;
  readonly base: string;
  readonly commit: string;
  readonly place: {
    readonly kind: 'directory' | 'branch' | 'link';
    /** As it is shown. */
    readonly path: string;
    readonly branch: string | null;
    /** Where the working tree takes part; null: only the branch moves. */
    readonly root: string | null;
    /** What sync locks when it works there. */
    readonly syncDirectory: string | null;
  };
  readonly checkout: Omit<Checkout, 'env'>;
  /** On the file system of the working tree. */
  readonly staging: string | null;
  /** On the file system of the repository. */
  readonly gitStaging: string | null;
  readonly move: RefMove | null;
  readonly steps: readonly FileStep[];
  /** Submodules too, which have no file. */
  readonly indexSteps: readonly TreeChange[];
  readonly makes: readonly DirectoryStep[];
  readonly removes: readonly DirectoryStep[];
  readonly flip: Flip | null;
  readonly insertions: number;
  readonly deletions: number;
  readonly state: JournalTargetState;
}

export interface Journal extends AppliedPlan {
  readonly id: string;
  readonly kind: 'apply' | 'undo';
  /** The apply that an undo takes back. */
  readonly of: string | null;
  readonly phase: 'preparing' | 'decided' | 'finished';
  readonly fence: number;
  readonly owner: ProcessOwner;
  readonly startedAtMs: number;
  readonly finishedAtMs: number | null;
  /** In the order in which they are changed. */
  readonly targets: readonly JournalTarget[];
}

const version = 1;
const magic = 'atoll-plan-apply';
const idPattern = /^\d{15}-[0-9a-f]{12}$/;

export function newJournalId(nowMs: number): string {
  return `${String(nowMs).padStart(15, '0')}-${randomBytes(6).toString('hex')}`;
}

/** The folder of all journals, made if missing. */
export async function openJournals(stateDirectory: string): Promise<string> {
  const folder = join(stateDirectory, 'plan-apply');
  const made = await mkdir(folder, { recursive: true, mode: 0o700 });
  await chmod(folder, 0o700);
  if (made !== undefined) await syncDirectory(dirname(made));
  return folder;
}

export function folderOf(journals: string, id: string): string {
  return join(journals, id);
}

/** Its name survives a power loss before anything is done that the journal in it leads to. */
export async function makeFolder(journals: string, id: string): Promise<string> {
  const folder = folderOf(journals, id);
  await mkdir(folder, { mode: 0o700 });
  await syncDirectory(journals);
  return folder;
}

export async function writeJournal(journals: string, journal: Journal): Promise<void> {
  const body = JSON.stringify(journal);
  await writeFileDurably(pathOf(journals, journal.id), `${magic} ${version} ${checksum(body)}\n${body}`);
}

/** In the order of time. Refuses if one of them cannot be believed: nothing is done beside a journal that nobody understands. */
export async function readJournals(journals: string): Promise<Journal[]> {
  const names = (await readdir(journals)).filter((name) => idPattern.test(name)).sort();
  const found: Journal[] = [];
  for (const name of names) {
    const journal = await readJournal(journals, name);
    if (journal !== undefined) found.push(journal);
  }
  return found;
}

/** undefined: its process died before there was one, so nothing else is there either. */
export async function readJournal(journals: string, id: string): Promise<Journal | undefined> {
  let text: string;
  try {
    text = await readFile(pathOf(journals, id), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw unusable(journals, id, 'cannot be read', error);
  }
  const [, found, sum, body] = /^atoll-plan-apply (\d+) ([0-9a-f]{64})\n([\s\S]*)$/.exec(text) ?? [];
  if (found === undefined || body === undefined) throw unusable(journals, id, 'is cut off or is no journal');
  if (Number(found) > version) {
    const path = pathOf(journals, id);
    throw new PlatformError(
      'plan_journal_unusable',
      `The journal ${path} was written by a newer atoll (version ${found}, this one knows ${version}). Use that one; nothing was changed.`,
      { details: { path, version: Number(found) } },
    );
  }
  if (checksum(body) !== sum) throw unusable(journals, id, 'is damaged: its checksum is wrong');
  const journal = JSON.parse(body) as Journal;
  if (journal.id !== id) throw unusable(journals, id, 'belongs to another folder');
  return journal;
}

export async function removeJournal(journals: string, id: string): Promise<void> {
  // The journal goes first: a folder without one is only rubbish.
  await rm(pathOf(journals, id), { force: true });
  await rm(folderOf(journals, id), { recursive: true, force: true });
}

function pathOf(journals: string, id: string): string {
  return join(journals, id, 'journal');
}

function checksum(body: string): string {
  return createHash('sha256').update(body).digest('hex');
}

function unusable(journals: string, id: string, what: string, cause?: unknown): PlatformError {
  const folder = folderOf(journals, id);
  return new PlatformError(
    'plan_journal_unusable',
    `The journal ${join(folder, 'journal')} ${what}. Nothing was changed. If an apply was under way, look at its targets: lock files ` +
      `(index.lock, refs/heads/….lock) and folders named .atoll-sync-plan-${id}… are its own, files end in ".old" there that were replaced. ` +
      `When all is as you want it, move ${folder} away.`,
    { details: { path: folder }, ...(cause !== undefined && { cause }) },
  );
}
