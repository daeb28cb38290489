/** Plans on real workspaces and sandboxes: what tests of them begin with. */
import { randomUUID } from 'node:crypto';
import type { Atoll, Sandbox } from '../../src/sdk/index.ts';
import { tarOf } from './workspace-content.ts';

export interface PlannedCase {
  readonly plan: string;
  readonly workspaces: readonly string[];
  readonly sandboxes: readonly Sandbox[];
}

/** A workspace with one file. */
export async function makeWorkspace(client: Atoll, files: Readonly<Record<string, string>> = { file: 'base\n' }) {
  const name = `ws-${randomUUID().slice(0, 8)}`;
  await client.workspaces.create(name, { content: 'none' });
  await client.workspaces.import(name, tarOf(files), { kind: 'archive', message: 'The beginning' });
  return name;
}

/** A change in each sandbox, and a plan of them. */
export async function planOf(client: Atoll, sandboxes: readonly Sandbox[]): Promise<string> {
  for (const { id } of sandboxes) {
    const sandbox = await client.sandboxes.connect(id);
    await sandbox.exec(`echo ${randomUUID()} > /src/mine; rm -f /src/file; mkdir -p /src/empty`);
  }
  const plan = `plan-${randomUUID().slice(0, 8)}`;
  await client.plans.create(
    plan,
    sandboxes.map(({ id }) => id),
  );
  return plan;
}

/** Two sandboxes, each on a workspace of its own and with a change there, and a plan of both. */
export async function planCase(client: Atoll): Promise<PlannedCase> {
  const workspaces = [await makeWorkspace(client), await makeWorkspace(client)];
  const sandboxes: Sandbox[] = [];
  for (const workspace of workspaces) {
    const sandbox = await client.sandboxes.create({ workspaces: [{ workspace, path: '/src' }] });
    sandboxes.push(sandbox);
  }
  return { plan: await planOf(client, sandboxes), workspaces, sandboxes };
}

export async function headsOf(client: Atoll, { workspaces }: PlannedCase): Promise<number[]> {
  return await Promise.all(workspaces.map(async (name) => (await client.workspaces.get(name)).head!.number));
}
