/**
 * The frame of a whole run of tests that make sandboxes: a directory of its own for everything temporary, one host template for all nodes (building
 * it takes seconds; the first that needs it does), and at the end a look around. Nothing that the run made may be left: no process, group, mount,
 * network or directory. What else happens on the machine is not looked at.
 */
import { type FSWatcher, watch } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findRunLeftovers, isNothing } from './run-leftovers.ts';

/** The kernel takes the last of a process down after it has been told to. */
const patienceMs = 5_000;
const pauseMs = 200;

let directory: string | undefined;
let watcher: FSWatcher | undefined;
/** Whatever was ever made in the directory: groups and networks are named after it. */
const names = new Set<string>();

export async function setup(): Promise<void> {
  // Every project of a run asks for it.
  if (process.env['ATOLL_TEST_RUN'] !== undefined) return;
  // Short, because paths of sockets are.
  directory = await mkdtemp(join(tmpdir(), 'at-'));
  // As open as the directory it stands for: some tests act as nobody.
  await chmod(directory, 0o1777);
  watcher = watch(directory, (_, name) => void names.add(name ?? ''));
  process.env['ATOLL_TEST_RUN'] = basename(directory);
  process.env['ATOLL_LAYERS'] = join(directory, 'layers');
  process.env['TMPDIR'] = directory;
}

export async function teardown(): Promise<void> {
  if (directory === undefined) return;
  await rm(join(directory, 'layers'), { recursive: true, force: true });
  const until = performance.now() + patienceMs;
  let left = await findRunLeftovers(directory, names);
  while (!isNothing(left) && performance.now() < until) {
    await delay(pauseMs);
    left = await findRunLeftovers(directory, names);
  }
  watcher?.close();
  // What is still mounted there may lead to files of the machine.
  if (left.mounts.length === 0) await rm(directory, { recursive: true, force: true });
  if (!isNothing(left)) throw new Error(`The tests left something behind: ${JSON.stringify(left, undefined, 2)}`);
}
