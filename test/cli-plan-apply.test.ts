/** `atoll plan apply`, `applied` and `undo`, against a server that answers with the wire's own words and bundles of git. */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import type { PlanCommitView } from '../src/sdk/index.ts';
import { ApplyRig, bundleOf, type RigTarget, stateOf, treeOf } from './support/apply-rig.ts';
import { openCliRig } from './support/cli-rig.ts';

/** What the server says of a committed plan, as far as an apply asks. */
function serverOf(targets: readonly RigTarget[], asked: string[]): typeof fetch {
  const published = targets.map(({ workspace, base, commit }) => ({
    workspaceId: `wsp-${workspace}`,
    workspace,
    state: 'published',
    base: { number: 1, commit: base },
    before: { number: 1, commit: base },
    after: { number: 2, commit },
  })) as unknown as PlanCommitView['targets'];
  return async (input) => {
    const { pathname, search } = new URL(String(input instanceof Request ? input.url : input));
    asked.push(`${pathname}${search}`);
    if (pathname === '/v1/plans/mine')
      return Response.json({ id: 'pln1', name: 'mine', commitId: 'cmt1', state: { kind: 'committed' } });
    if (pathname === '/v1/plans/open')
      return Response.json({ id: 'pln2', name: 'open', commitId: null, state: { kind: 'open' } });
    if (pathname === '/v1/plans/pln1/commits/cmt1')
      return Response.json({ id: 'cmt1', planId: 'pln1', planName: 'mine', targets: published });
    const target = targets.find(({ workspace }) => pathname === `/v1/workspaces/wsp-${workspace}/export`)!;
    const since = search.includes('since') ? [target.base] : [];
    return new Response(await buffer(bundleOf(target.source, target.commit, since) as NodeJS.ReadableStream));
  };
}

test('C64, C67: a plan is applied from the command line, again as a no-op, and undone, with the exit codes that scripts rely on', async () => {
  using rig = new ApplyRig();
  const one = rig.repository('one', { a: '1\n' });
  const two = rig.folder('two', { a: '1\n' });
  const targets = [rig.result(one, { a: '2\n' }), rig.foreignResult({ a: '1\n' }, { a: '2\n' }, { path: two }, 'two')];
  await using cli = await openCliRig();
  const asked: string[] = [];
  const run = async (...words: readonly string[]) => {
    const env = { ...process.env, ATOLL_STATE: rig.state };
    const shared = ['--url', 'http://server.invalid', '--key', 'k', '--json'];
    const answer = await cli.runBare([...words, ...shared], {
      fetch: serverOf(targets, asked),
      env,
      cwd: rig.directory,
    });
    return { exitCode: answer.exitCode, said: JSON.parse(answer.stdout) as Record<string, unknown> };
  };
  const before = [stateOf(one), treeOf(two)];
  expect(await run('undo')).toMatchObject({ said: { error: { code: 'undo_nothing' } } });
  expect(await run('plan', 'apply', 'open')).toMatchObject({
    exitCode: 73,
    said: { error: { code: 'plan_wrong_state' } },
  });
  const unnamed = await run('plan', 'apply', 'mine');
  expect(unnamed).toMatchObject({
    exitCode: 64,
    said: { error: { message: expect.stringContaining('--target one=PATH --target two=PATH') } },
  });
  const words = ['--target', 'one=one#main', '--target', 'two=two'];
  expect(await run('plan', 'apply', 'mine', ...words, '--target', 'three=x')).toMatchObject({ exitCode: 64 });
  expect(await run('plan', 'apply', 'mine', ...words, '--dry-run')).toMatchObject({
    exitCode: 0,
    said: { state: 'applied', dryRun: true },
  });
  writeFileSync(join(one, 'a'), 'edited\n');
  expect(await run('plan', 'apply', 'mine', ...words)).toMatchObject({ exitCode: 2, said: { state: 'conflict' } });
  writeFileSync(join(one, 'a'), '1\n');
  writeFileSync(join(one, '.git/index.lock'), '');
  expect(await run('plan', 'apply', 'mine', ...words)).toMatchObject({ exitCode: 3, said: { state: 'busy' } });
  rmSync(join(one, '.git/index.lock'));
  expect([stateOf(one), treeOf(two)]).toEqual(before);
  expect(await run('plan', 'apply', 'mine', ...words)).toMatchObject({
    exitCode: 0,
    said: {
      state: 'applied',
      planId: 'pln1',
      commitId: 'cmt1',
      mode: 'atomic',
      targets: [
        { path: two, branch: null },
        { path: one, branch: 'main' },
      ],
    },
  });
  // What the repository has is not sent again; the place is remembered.
  expect(asked).toContain('/v1/workspaces/wsp-one/export?kind=bundle&version=2&since=1');
  expect(asked).toContain('/v1/workspaces/wsp-two/export?kind=bundle&version=2');
  expect(await run('plan', 'apply', 'mine')).toMatchObject({ exitCode: 0, said: { state: 'nothing' } });
  expect(await run('plan', 'applied')).toMatchObject({
    exitCode: 0,
    said: { items: [{ state: 'applied', planName: 'mine' }] },
  });
  expect(await run('undo', '--dry-run')).toMatchObject({ exitCode: 0, said: { state: 'applied', dryRun: true } });
  writeFileSync(join(two, 'a'), 'edited since\n');
  expect(await run('undo')).toMatchObject({ exitCode: 5, said: { state: 'undoIncomplete' } });
  writeFileSync(join(two, 'a'), '2\n');
  expect(await run('undo')).toMatchObject({ exitCode: 0, said: { state: 'undone' } });
  expect([stateOf(one), treeOf(two)]).toEqual(before);
});
