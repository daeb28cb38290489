/** Control with workspaces on real git stores and with sandboxes whose files are directories here: the calls that its tests share. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'vitest';
import { type BodyInputOf, type Conditions, routes, type SandboxId } from '../../src/protocol/index.ts';
import type { ControlRig } from './control-rig.ts';
import { tarOf } from './workspace-content.ts';

export const page = { 'a.txt': 'one\ntwo\nthree\n', 'docs/b.md': 'b\n' };
export const signal = new AbortController().signal;

type Files = Readonly<Record<string, string>>;

export function workspaceCalls(find: () => ControlRig) {
  const calls = {
    asked: (sandboxId: SandboxId, workspace = 'site', conditions: Conditions = {}) => ({
      ...{ caller: find().caller, sandboxId, workspace, conditions },
    }),
    make: async (name = 'site', files: Files = page) => {
      const { control, caller } = find();
      await control.workspaces.create(caller, {}, { name, content: 'none' });
      await calls.bring(name, files);
      return await control.workspaces.get(caller, name);
    },
    bring: (name: string, files: Files, conditions: Conditions = {}, expectedHead?: number) => {
      const { control, caller } = find();
      const query = { kind: 'archive' as const, ...(expectedHead !== undefined && { expectedHead }) };
      return control.versions.importBytes(caller, name, conditions, query, once(tarOf(files)), signal);
    },
    createWith: (
      body: BodyInputOf<typeof routes.createSandbox> = { workspaces: [{ workspace: 'site', path: '/s' }] },
    ) => find().create(body),
    attach: (id: SandboxId, body: BodyInputOf<typeof routes.attachWorkspace>, conditions: Conditions = {}) => {
      const { control, caller } = find();
      return control.attachments.attach(caller, id, conditions, routes.attachWorkspace.body.parse(body));
    },
    commit: (id: SandboxId, message = 'Changed', conditions: Conditions = {}, workspace = 'site') =>
      find().control.attachmentChanges.commit(calls.asked(id, workspace, conditions), { message, trailers: [] }),
    head: async (name = 'site') => (await find().control.workspaces.get(find().caller, name)).head!.number,
    write: async (id: SandboxId, path: string, content: string) => {
      const file = join(await find().node.checkout(id, '/'), path);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, content);
    },
    read: async (id: SandboxId, path: string) => readFile(join(await find().node.checkout(id, '/'), path), 'utf8'),
    holdsOf: async (name = 'site') => {
      const { id: workspaceId } = await find().control.workspaces.get(find().caller, name);
      return (await find().node.workspaces.holds({ workspaceId })).map((one) => one.name).sort();
    },
    /** Nothing of a step is left on the node, and nobody has anything to settle. */
    expectClean: async (kept: { sandboxes: number; checkpoints: number }) => {
      const { node } = find();
      await find().reconcile();
      expect(node.sandboxes.size).toBe(kept.sandboxes);
      expect(node.branches.checkpoints.size).toBe(kept.checkpoints);
      expect(await find().reconcile({ dryRun: true })).toMatchObject({ actions: [], checkpoints: [] });
    },
  };
  return calls;
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array, void> {
  yield bytes;
}
