/** Sync of a checkout of 20,000 files: what push and pull add to a command, without changes and with one changed file. */
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openCheckout, pull, push } from '../../src/checkout/sync/index.ts';
import type { Sandbox } from '../../src/sdk/index.ts';
import { againstLimit, figure, shownOnly } from '../finding.ts';
import { timed } from '../interleave.ts';
import type { Row, Scope } from '../row.ts';
import { startPlatform } from '../start.ts';

const files = { folders: 200, perFolder: 100 };
const rounds = 15;
const warmups = 3;
const addedLimitMs = { unchanged: 200, oneFile: 350 };

export const syncRow: Row = {
  name: 'sync',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    const sandbox = await platform.client.sandboxes.create();
    const root = await makeCheckout(scope);
    const first = await cycle(scope, root, sandbox);
    const unchanged = await measure(scope, root, sandbox, async () => {});
    const oneFile = await measure(scope, root, sandbox, (round) => writeFile(join(root, 'd7/f7'), `round ${round}\n`));
    return [
      shownOnly(figure('sync of 20,000 files, first push', [first.push])),
      ...judged('sync, nothing changed', unchanged, addedLimitMs.unchanged),
      ...judged('sync, one file changed', oneFile, addedLimitMs.oneFile),
    ];
  },
};

interface Times {
  readonly push: number;
  readonly run: number;
  readonly pull: number;
}

function judged(name: string, times: readonly Times[], limitMs: number) {
  const added = figure(
    `${name}: added to the command`,
    times.map((one) => one.push + one.pull),
  );
  return [
    againstLimit(added, { atMost: limitMs }),
    ...(['push', 'run', 'pull'] as const).map((part) =>
      shownOnly(
        figure(
          `${name}: ${part}`,
          times.map((one) => one[part]),
        ),
      ),
    ),
  ];
}

async function measure(
  scope: Scope,
  root: string,
  sandbox: Sandbox,
  change: (round: number) => Promise<void>,
): Promise<Times[]> {
  const times: Times[] = [];
  for (let round = 0; round < warmups + rounds; round++) {
    await change(round);
    const one = await cycle(scope, root, sandbox);
    if (round >= warmups) times.push(one);
  }
  return times;
}

/** As one run of the command line: the checkout is opened once, and that counts to the push. */
async function cycle(scope: Scope, root: string, sandbox: Sandbox): Promise<Times> {
  const options = { env: process.env, stateDirectory: join(scope.directory, 'sync-state') };
  const startMs = performance.now();
  const checkout = await openCheckout(root, options);
  await push(checkout, sandbox);
  return {
    push: performance.now() - startMs,
    run: await timed(() => sandbox.exec(['true'])),
    pull: await timed(() => pull(checkout, sandbox)),
  };
}

async function makeCheckout(scope: Scope): Promise<string> {
  const root = join(scope.directory, 'sync-checkout');
  for (let folder = 0; folder < files.folders; folder++) {
    await mkdir(join(root, `d${folder}`), { recursive: true });
    const writes = Array.from({ length: files.perFolder }, (_, i) =>
      writeFile(join(root, `d${folder}/f${i}`), `file ${i} of folder ${folder}\n`.repeat(20)),
    );
    await Promise.all(writes);
  }
  const git = (...words: string[]) => promisify(execFile)('git', ['-C', root, ...words]);
  await git('init', '-q', '-b', 'main');
  await git('add', '-A');
  await git('-c', 'user.name=bench', '-c', 'user.email=bench@example.com', 'commit', '-q', '-m', 'files');
  return root;
}
