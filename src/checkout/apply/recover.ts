/** Settles what earlier processes left, before anything else is done, and forgets records that nobody needs any more. */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { discardCopy } from './flip.ts';
import { type Journal, readJournals, removeJournal } from './journal.ts';
import type { RunContext } from './run-context.ts';
import { recoverJournal, removeRefs } from './settle-journal.ts';

/** How long an apply can be undone, and how many are kept. */
const keptMs = 14 * 24 * 3600 * 1000;
const keptCount = 50;

/** Answers the journals that are left: finished ones, and those that could not be settled yet. */
export async function recover(run: RunContext): Promise<readonly Journal[]> {
  const found = await readJournals(run.journals);
  await removeRubbish(run, found);
  for (const journal of found) await recoverJournal(run, journal);
  return await expire(run, await readJournals(run.journals));
}

/** A folder without a journal is from a process that died before it had done anything. */
async function removeRubbish(run: RunContext, found: readonly Journal[]): Promise<void> {
  const known = new Set(found.map(({ id }) => id));
  for (const name of await readdir(run.journals)) {
    if (/^\d{15}-/.test(name) && !known.has(name)) await rm(join(run.journals, name), { recursive: true, force: true });
  }
}

async function expire(run: RunContext, journals: readonly Journal[]): Promise<readonly Journal[]> {
  const finished = journals.filter(({ phase }) => phase === 'finished');
  const tooMany = new Set(finished.slice(0, Math.max(0, finished.length - keptCount)));
  const isOld = (journal: Journal) =>
    journal.phase === 'finished' && ((journal.finishedAtMs ?? 0) < run.nowMs() - keptMs || tooMany.has(journal));
  const kept = journals.filter((journal) => !isOld(journal));
  const used = new Set(kept.flatMap(({ targets }) => targets.flatMap(({ flip }) => [flip?.from, flip?.to])));
  for (const journal of journals.filter(isOld)) {
    for (const [number, target] of journal.targets.entries()) {
      await removeRefs(run, journal.id, number, target);
      for (const directory of [target.flip?.from, target.flip?.to]) {
        if (target.flip !== null && directory !== undefined && !used.has(directory))
          await discardCopy(target.flip.link, directory);
      }
    }
    await removeJournal(run.journals, journal.id);
  }
  return kept;
}
