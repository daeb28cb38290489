/**
 * Several agents in one checkout, each running `atoll exec` again and again: before each it writes a line to a file of its own here, and the
 * command writes a line to a file that all share, in the sandbox. Some clients are killed on the way. What must hold afterwards is told as a
 * list of what does not.
 */
import { appendFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { CheckoutRig, Spawned } from './checkout-cli-rig.ts';
import type { Platform } from './platform.ts';

export interface AgentsOptions {
  readonly platform: Platform;
  readonly rig: CheckoutRig;
  readonly root: string;
  readonly agents: number;
  /** Of all agents together. */
  readonly rounds: number;
  /** Every so many rounds a client is killed at some point; 0: none. */
  readonly killEvery: number;
  readonly onRound?: (round: number) => void;
}

export interface AgentsReport {
  readonly done: number;
  readonly killed: number;
  /** Empty: nothing is wrong. */
  readonly wrong: readonly string[];
}

/** A client waits for its turn longer than this. */
const killWithinMs = 4_000;
/** And pushes, runs and pulls within about this. */
const turnMs = 800;
const sharedFile = 'shared.txt';

export async function runAgents(options: AgentsOptions): Promise<AgentsReport> {
  const { rig, root, agents, rounds, killEvery } = options;
  const wrong: string[] = [];
  const finished = new Set<string>();
  const killed = new Set<string>();
  let next = 0;
  const agent = async (name: string) => {
    const own = `agent-${name}.txt`;
    while (next < rounds) {
      const round = next++;
      const line = `${name} ${round}`;
      await appendFile(join(root, own), `${line}\n`);
      const script = 'grep -qxF "$1" "$2" || exit 90; echo "$1" >> shared.txt';
      const running = rig.spawn(root, ['exec', '-v', '--', 'sh', '-c', script, 'sh', line, own]);
      running.child.stdin?.end();
      const isDoomed = killEvery > 0 && round % killEvery === killEvery - 1;
      const spare = isDoomed ? doom(running, { isInTurn: Math.random() < 0.75 }) : () => {};
      const code = await running.ended;
      spare();
      if (code === 0) finished.add(line);
      else if (isDoomed && code === null) killed.add(line);
      else wrong.push(`round "${line}" ended with ${code}: ${running.stderr}`);
      options.onRound?.(round);
    }
  };
  await Promise.all(Array.from({ length: agents }, (_, index) => agent(String(index))));
  // What killed clients left in the sandbox comes with whoever is next.
  const last = await rig.run(root, ['exec', '--', 'true']);
  if (last.code !== 0) wrong.push(`the last command ended with ${last.code}: ${last.stderr}`);
  wrong.push(...(await judge(options, finished, killed)));
  return { done: finished.size, killed: killed.size, wrong };
}

/** Kills it at some moment: of its turn, or of the time before. The answer takes it back. */
function doom({ child }: Spawned, options: { readonly isInTurn: boolean }): () => void {
  let timer: NodeJS.Timeout | undefined;
  const killWithin = (limitMs: number) => {
    timer ??= setTimeout(() => child.kill('SIGKILL'), Math.random() * limitMs);
  };
  if (!options.isInTurn) killWithin(killWithinMs);
  else child.stderr?.on('data', (text: string) => text.includes('lease granted') && killWithin(turnMs));
  return () => clearTimeout(timer);
}

async function judge(
  { platform, root, agents, rounds }: AgentsOptions,
  finished: ReadonlySet<string>,
  killed: ReadonlySet<string>,
): Promise<readonly string[]> {
  const wrong: string[] = [];
  const shared = await linesOf(join(root, sharedFile));
  for (const line of finished) {
    const count = shared.filter((found) => found === line).length;
    if (count !== 1) wrong.push(`the edit "${line}" is there ${count} times`);
  }
  for (const line of shared) {
    if (!finished.has(line) && !killed.has(line)) wrong.push(`"${line}" was written by nobody`);
  }
  let own = 0;
  for (let index = 0; index < agents; index++) own += (await linesOf(join(root, `agent-${index}.txt`))).length;
  if (own !== rounds) wrong.push(`of ${rounds} edits of their own files ${own} are there`);
  const { items } = await platform.client.sandboxes.list();
  if (items.length !== 1) wrong.push(`there are ${items.length} sandboxes`);
  const leases = await platform.client.leases.list();
  if (leases.length > 0) wrong.push(`leases are left: ${JSON.stringify(leases)}`);
  return wrong;
}

async function linesOf(path: string): Promise<readonly string[]> {
  const text = await readFile(path, 'utf8').catch(() => '');
  return text.split('\n').filter((line) => line !== '');
}
