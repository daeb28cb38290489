/** Which place on this machine belongs to which workspace: learnt when one is imported from it or applied to it, so that it need not be named again. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { writeFileDurably } from '../../base/index.ts';
import { type Environment, LocalGit } from '../local-git.ts';
import { openJournals } from './journal.ts';
import type { TargetPlace } from './plan-target.ts';

/** So many are remembered; the oldest go first. */
const placesMax = 1_000;
const placesSchema = z.array(z.object({ workspaceId: z.string(), path: z.string(), branch: z.string().optional() }));

export async function rememberedPlaces(stateDirectory: string): Promise<ReadonlyMap<string, TargetPlace>> {
  const known = await readPlaces(await openJournals(stateDirectory));
  return new Map(
    known.map(({ workspaceId, path, branch }) => [workspaceId, { path, ...(branch !== undefined && { branch }) }]),
  );
}

export async function rememberPlace(stateDirectory: string, workspaceId: string, place: TargetPlace): Promise<void> {
  const journals = await openJournals(stateDirectory);
  const others = (await readPlaces(journals)).filter((known) => known.workspaceId !== workspaceId);
  const places = [...others, { workspaceId, ...place }].slice(-placesMax);
  await writeFileDurably(pathOf(journals), JSON.stringify(places));
}

/** A workspace was made from this directory, or from the branch that is checked out in it. */
export async function rememberImport(
  stateDirectory: string,
  workspaceId: string,
  { path, env }: { readonly path: string; readonly env: Environment },
): Promise<void> {
  const branch = await new LocalGit({ cwd: path, env }).line('symbolic-ref', '-q', '--short', 'HEAD');
  await rememberPlace(stateDirectory, workspaceId, { path, ...(branch !== undefined && { branch }) });
}

/** What cannot be read is not known: the person is asked. */
async function readPlaces(journals: string): Promise<z.output<typeof placesSchema>> {
  try {
    return placesSchema.parse(JSON.parse(await readFile(pathOf(journals), 'utf8')));
  } catch {
    return [];
  }
}

function pathOf(journals: string): string {
  return join(journals, 'places.json');
}
