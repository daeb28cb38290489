/** What the commit of a plan costs: of eight sandboxes with a hundred changed files each, against the commit of one. */
import { randomUUID } from 'node:crypto';
import type { Atoll, Sandbox } from '../../src/sdk/index.ts';
import { makeWorkspace } from '../../test/support/plan-cases.ts';
import { againstPeer, type Finding, figure } from '../finding.ts';
import { interleave } from '../interleave.ts';
import type { Row } from '../row.ts';
import { startPlatform } from '../start.ts';

const rounds = 6;
const members = 8;
const files = 100;

export const plansRow: Row = {
  name: 'plans',
  run: async (scope): Promise<Finding[]> => {
    const { client } = await startPlatform(scope);
    const sandboxes: Sandbox[] = [];
    for (let index = 0; index < members; index++) {
      const workspace = await makeWorkspace(client);
      sandboxes.push(await client.sandboxes.create({ workspaces: [{ workspace, path: '/src' }] }));
    }
    const samples = await interleave(
      { many: () => commitOf(client, sandboxes), one: () => commitOf(client, sandboxes.slice(0, 1)) },
      { rounds, warmups: 1 },
    );
    const name = `commit of ${members} sandboxes with ${files} changed files each`;
    return [againstPeer(figure(name, samples.many), figure('of one', samples.one), { atMost: 6 })];
  },
};

/** From the request to the answer; the files are changed before. */
async function commitOf(client: Atoll, sandboxes: readonly Sandbox[]): Promise<number> {
  const label = randomUUID();
  await Promise.all(
    sandboxes.map((sandbox) =>
      sandbox.exec(`cd /src && for n in $(seq ${files}); do echo ${label} $n > file-$n; done; sync`),
    ),
  );
  const { id } = await client.plans.create(
    `plan-${label}`,
    sandboxes.map((sandbox) => sandbox.id),
  );
  const startedAt = performance.now();
  const { state } = await client.plans.commit(id, { waitMs: 60_000 });
  const ms = performance.now() - startedAt;
  if (state !== 'committed') throw new Error(`The commit is ${state}.`);
  return ms;
}
