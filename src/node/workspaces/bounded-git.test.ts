/** Content and servers that would take all memory of the node: git is ended by its bound, and the caller is told. */
import { once } from 'node:events';
import { afterEach, expect, test } from 'vitest';
import { openGitHttp } from '../../../test/support/git-http.ts';
import { openLocalRig, type WorkspacesUnderTest, WorkspaceUser } from '../../../test/support/workspace-rig.ts';

const rigs: WorkspacesUnderTest[] = [];
afterEach(async () => {
  for (const rig of rigs.splice(0)) await rig.close();
});

async function open(limits: { gitMemoryBytes?: number }): Promise<{ rig: WorkspacesUnderTest; user: WorkspaceUser }> {
  const rig = await openLocalRig({ limits, remotes: { allowedHosts: ['127.0.0.1'] } });
  rigs.push(rig);
  return { rig, user: await WorkspaceUser.create(rig.workspaces) };
}

/** A merge by lines takes more than a hundred bytes for each. */
const lines = 'a\n'.repeat(300_000);

async function mergeOf({ user }: { user: WorkspaceUser }) {
  const base = await user.importFiles({ file: lines });
  const ours = await user.importFiles({ file: `x\n${lines}` });
  const theirs = await user.importFiles({ file: `${lines}y\n` });
  return await user.merge(base.tree, ours.tree, theirs.tree);
}

test('a file of many short lines that both sides changed ends the merge, not the node', async () => {
  await expect(mergeOf(await open({ gitMemoryBytes: 32 * 1024 ** 2 }))).rejects.toMatchObject({
    code: 'limit_exceeded',
  });
  // With the memory that it needs it is merged.
  expect(await mergeOf(await open({}))).toMatchObject({ kind: 'merged' });
});

test('a server that names refs without an end is given up', async () => {
  const { rig, user } = await open({ gitMemoryBytes: 32 * 1024 ** 2 });
  const first = await user.importFiles({ file: 'x' });
  const packet = (text: string) => `${(text.length + 4).toString(16).padStart(4, '0')}${text}`;
  const endless = await openGitHttp({
    root: '/nonexistent',
    intercept: async (request, response) => {
      const service = new URL(request.url ?? '', 'http://x').searchParams.get('service') ?? '';
      response.writeHead(200, { 'content-type': `application/x-${service}-advertisement` });
      response.write(`${packet(`# service=${service}\n`)}0000`);
      for (let count = 0; !response.destroyed; count++) {
        const refs = Array.from({ length: 1_000 }, (_, index) =>
          packet(`${first.commit} refs/heads/b${count}-${index}\n`),
        );
        if (!response.write(refs.join(''))) await Promise.race([once(response, 'drain'), once(response, 'close')]);
      }
      return true;
    },
  });
  try {
    const push = rig.workspaces.pushRemote({
      ...{
        workspaceId: user.workspaceId,
        url: `${endless.url}/`,
        ref: 'main',
        credentials: null,
        commit: first.commit,
      },
    });
    await expect(push).rejects.toMatchObject({ code: expect.stringMatching(/limit_exceeded|workspace_remote_failed/) });
  } finally {
    await endless.close();
  }
});
