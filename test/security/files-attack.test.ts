/**
 * A process inside exchanges directories for symlinks in a tight loop, to places outside the sandbox and to places of its own outside the tree, while
 * the file API reads, writes, lists, packs, unpacks, copies and removes there.
 */
import { chmod, mkdir, readdir, readFile, realpath, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type FileAction, isPlatformError, type NodeApi } from '../../src/protocol/index.ts';
import { AttackRig, type Target } from '../support/attack-rig.ts';
import { describeWith, requires } from '../support/requires.ts';

const operationsWanted = 100_000;
/** Half a minute where nobody else works; all of them are done however long they take. */
const timeLimitMs = 900_000;
const callersAtOnce = 12;
const secret = 'SECRET-OF-THE-MACHINE';
const canary = 'CANARY-OUTSIDE-THE-TREE';

describeWith(
  requires.root,
  requires.cgroups,
  requires.compiler,
)('file operations raced from inside', () => {
  let rig: AttackRig;
  let target: Target;
  let node: NodeApi;
  /** Of the machine: what must be neither read nor changed. */
  let outside: string;
  let before: unknown;

  beforeAll(async () => {
    rig = await AttackRig.open();
    target = await rig.sandbox();
    ({ node } = await rig.node());
    outside = join(rig.directory, 'outside');
    await mkdir(join(outside, 'deep'), { recursive: true });
    for (const name of ['secret', 'victim', 'only-on-the-machine', 'deep/secret']) {
      await writeFile(join(outside, name), secret, { mode: 0o666 });
    }
    await chmod(outside, 0o777);
    await chmod(rig.directory, 0o755);
    before = await describeOutside();
    const prepared = await target.run(
      `mkdir -p /race /canary/deep; for f in secret victim deep/secret; do printf of-the-sandbox > /canary/$f; done; printf ${canary} > /canary/deep/keep; chmod -R 777 /canary`,
    );
    expect(prepared.exitCode).toBe(0);
  });

  afterAll(() => rig?.close());

  /** Names, contents and times: whatever a change would change. */
  async function describeOutside(): Promise<unknown> {
    const names = (await readdir(outside, { recursive: true })).sort();
    return await Promise.all(
      ['.', ...names].map(async (name) => {
        const path = join(outside, name);
        const { mode, uid, size, ctimeMs, nlink } = await stat(path);
        const content = size === secret.length ? await readFile(path, 'utf8') : '';
        return { name, mode, uid, ctimeMs, nlink, content };
      }),
    );
  }

  const order = () => ({ ...lifeOf(target), user: null, leaseToken: null });
  const act = (action: FileAction) => node.fileAction({ ...order(), action });
  const write = (path: string, how: 'replace' | 'append') =>
    node.writeFile(
      { ...order(), path, how, mode: null, owner: null, parents: true, expected: { kind: 'any' } },
      chunks('written'),
    );

  test(
    `nothing of the machine is read or changed in ${operationsWanted} operations, nor anything outside the tree by those on trees`,
    async () => {
      const targets = [
        outside,
        `../../../../../../../..${outside}`,
        `/proc/1/root${outside}`,
        `/proc/self/root${outside}`,
        '/etc/passwd',
        '..',
        '/proc/1/root',
        '/canary',
      ];
      const swapper = target.start(['/attack', 'swap', '/race', ...targets]);
      let hasEnded = false;
      void swapper.ended.finally(() => (hasEnded = true)).catch(() => {});
      const tar = await packedTar();
      const seen: string[] = [];
      const treeSeen: string[] = [];
      const operations: readonly (() => Promise<unknown>)[] = [
        async () =>
          seen.push(
            await textOf(
              (await node.readFile({ ...order(), path: '/race/dir/secret', offset: 0, length: null })).bytes,
            ),
          ),
        async () =>
          seen.push(
            await textOf(
              (await node.readFile({ ...order(), path: '/race/dir/deep/secret', offset: 0, length: null })).bytes,
            ),
          ),
        () => write('/race/dir/victim', 'replace'),
        () => write('/race/dir/deep/victim', 'append'),
        async () =>
          seen.push(JSON.stringify(await act({ kind: 'list', path: '/race/dir', depth: 1, limit: 50, after: null }))),
        async () =>
          treeSeen.push(JSON.stringify(await act({ kind: 'list', path: '/race', depth: 4, limit: 200, after: null }))),
        () =>
          act({ kind: 'stat', path: '/race/dir/only-on-the-machine', followLinks: true }).then((entry) =>
            seen.push(JSON.stringify(entry)),
          ),
        () => act({ kind: 'remove', path: '/race/dir/secret', recursive: false }),
        async () => treeSeen.push(await textOf((await node.readTree({ ...order(), path: '/race' })).bytes)),
        () => node.writeTree({ ...order(), path: '/race' }, chunks(tar)),
        () => act({ kind: 'makeDirectory', path: '/race/dir/made/below', mode: null, parents: true }),
        () => act({ kind: 'changeAttributes', path: '/race/dir/deep/victim', mode: 0o600, owner: null }),
        () => act({ kind: 'copy', from: '/race', to: '/copied', recursive: true, replace: true }),
        () => act({ kind: 'remove', path: '/copied', recursive: true }),
        () => act({ kind: 'move', from: '/race/dir/victim', to: '/race/dir/moved', replace: true }),
      ];
      // Rare, because the swapper must make it all again.
      const rare = () => act({ kind: 'remove', path: '/race/dir', recursive: true });
      // What the exchanged name was when it was looked at, in the second half: the race goes on.
      const met = new Map<string, number>();
      const look = async () => {
        const { type } = await node.fileAction({
          ...order(),
          action: { kind: 'stat', path: '/race/dir', followLinks: false },
        });
        if (begun > operationsWanted / 2) met.set(type, (met.get(type) ?? 0) + 1);
      };
      let begun = 0;
      let done = 0;
      let succeeded = 0;
      const codes = new Map<string, number>();
      const work = async () => {
        while (begun < operationsWanted) {
          const number = begun++;
          const operation =
            number % 500 === 0 ? rare : number % 50 === 1 ? look : operations[number % operations.length]!;
          try {
            await operation();
            succeeded++;
          } catch (error) {
            if (!isPlatformError(error)) throw error;
            codes.set(error.code, (codes.get(error.code) ?? 0) + 1);
            if (['internal', 'sandbox_wrong_state'].includes(error.code)) throw error;
          }
          done++;
          for (const text of seen.splice(0)) refuseLeak(text, [secret, 'only-on-the-machine"']);
          for (const text of treeSeen.splice(0)) refuseLeak(text, [secret, 'only-on-the-machine', canary]);
        }
      };
      await Promise.all(Array.from({ length: callersAtOnce }, work));
      const counts = JSON.stringify({ refused: Object.fromEntries(codes), met: Object.fromEntries(met) });
      console.log(`${done} file operations, ${succeeded} did what they were asked, ${counts}`);
      expect(hasEnded).toBe(false);
      await swapper.stop();
      expect(done).toBeGreaterThanOrEqual(operationsWanted);
      expect(succeeded).toBeGreaterThan(operationsWanted / 10);
      expect([...met.keys()].sort()).toEqual(['directory', 'symlink']);
      // Nobody killed a worker, so none was lost.
      expect([codes.get('outcome_unknown'), codes.get('sandbox_unavailable')]).toEqual([undefined, undefined]);
      expect(await describeOutside()).toEqual(before);
      // What no operation names directly is there still: trees were gone through without following.
      expect((await target.run('cat /canary/deep/keep')).stdout).toBe(canary);
    },
    timeLimitMs,
  );

  test('control: paths resolved from outside, below the upper directory, do read and change the machine', async () => {
    const upper = target.tree();
    await target.run(`rm -rf /control; mkdir /control; ln -s ${outside} /control/dir`);
    const read = await readFile(join(upper, 'control/dir/secret'), 'utf8');
    expect(() => refuseLeak(read, [secret])).toThrow('leaked');
    await writeFile(join(upper, 'control/dir/victim'), 'changed');
    expect(await describeOutside()).not.toEqual(before);
  });

  test('control: a path that is checked from outside and then used is caught by the same race', async () => {
    const race = join(target.tree(), 'race');
    const swapper = target.start(['/attack', 'swap', '/race', outside]);
    void swapper.ended.catch(() => {});
    const isCaught = async () => {
      const path = join(race, 'dir/secret');
      const real = await realpath(path).catch(() => '');
      if (!real.startsWith(race)) return false;
      const text = await readFile(path, 'utf8').catch(() => '');
      return text.includes(secret);
    };
    await expect.poll(isCaught, { timeout: 45_000, interval: 0 }).toBe(true);
    await swapper.stop();
  });

  async function packedTar(): Promise<string> {
    const made = await target.run(
      'mkdir -p /pack/dir/deep; printf packed > /pack/dir/victim; printf packed > /pack/dir/deep/keep; tar -C /pack -cf /pack.tar .',
    );
    expect(made.exitCode).toBe(0);
    return await textOf((await node.readFile({ ...order(), path: '/pack.tar', offset: 0, length: null })).bytes);
  }
});

function lifeOf({ sandbox }: Target) {
  return { sandboxId: sandbox.mark.sandboxId, generation: sandbox.generation };
}

function refuseLeak(text: string, secrets: readonly string[]): void {
  for (const one of secrets)
    if (text.includes(one)) throw new Error(`${one} leaked: ${JSON.stringify(text.slice(0, 2_000))}`);
}

async function* chunks(text: string): AsyncGenerator<Uint8Array, void> {
  yield Buffer.from(text, 'latin1');
}

async function textOf(bytes: AsyncIterable<Uint8Array>): Promise<string> {
  const all: Uint8Array[] = [];
  for await (const chunk of bytes) all.push(chunk);
  return Buffer.concat(all).toString('latin1');
}
