/** What root inside is worth: its capabilities, its files outside, and setuid programs with and without leave. */
import { execFile } from 'node:child_process';
import { chmod, copyFile, mkdir, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AttackRig, stepsOf, type Target } from '../support/attack-rig.ts';
import { describeWith, requires, testWith } from '../support/requires.ts';

const run = promisify(execFile);
const nobody = { uid: 65_534, gid: 65_534 };
/** Docker's default set: chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod, audit_write, setfcap. */
const kept = '00000000a80425fb';
const none = '0000000000000000';

describeWith(
  requires.root,
  requires.cgroups,
  requires.compiler,
)('privileges', () => {
  let rig: AttackRig;
  let guarded: Target;
  let strict: Target;

  beforeAll(async () => {
    rig = await AttackRig.open();
    guarded = await rig.sandbox();
    strict = await rig.sandbox({ spec: { noNewPrivileges: true } });
  });

  afterAll(() => rig?.close());

  const status = async (target: Target, user: string | null = null) => {
    const { stdout } = await target.run(['cat', '/proc/self/status'], { user });
    return Object.fromEntries(stdout.split('\n').map((line) => line.split(':\t') as [string, string]));
  };

  test('root inside has exactly the capabilities it is meant to have, and a user none', async () => {
    expect(await status(guarded)).toMatchObject({
      ...{ CapInh: none, CapPrm: kept, CapEff: kept, CapBnd: kept, CapAmb: none },
      ...{ NoNewPrivs: '0', Seccomp: '2', Seccomp_filters: '1' },
    });
    expect(await status(guarded, 'user')).toMatchObject({
      ...{ CapInh: none, CapPrm: none, CapEff: none, CapBnd: kept, CapAmb: none, Seccomp: '2' },
    });
    const open = await rig.sandbox({ openGuards: ['capabilities', 'seccomp'] });
    const control = await status(open);
    expect(control['CapEff']).not.toBe(kept);
    expect(BigInt(`0x${control['CapEff']}`) & (1n << 21n), 'SYS_ADMIN').not.toBe(0n);
    expect(control).toMatchObject({ Seccomp: '0' });
  });

  test('root inside is an ordinary, large id outside', async () => {
    const init = await guarded.initPid();
    const map = await readFile(`/proc/${init}/uid_map`, 'utf8');
    const [inside, outside, count] = map.trim().split(/ +/).map(Number);
    expect({ inside, count }).toEqual({ inside: 0, count: 65_536 });
    expect(outside).toBeGreaterThan(65_535);
    const uids = /^Uid:\t(\d+)\t(\d+)\t(\d+)\t(\d+)$/m.exec(await readFile(`/proc/${init}/status`, 'utf8'));
    expect(uids?.slice(1).map(Number)).toEqual([outside, outside, outside, outside]);
  });

  test('a setuid file made inside is out of reach for users of the machine', async () => {
    await guarded.run('cp /attack /workspace/rootly && chmod 4755 /workspace/rootly');
    const outside = join(guarded.tree(), 'workspace', 'rootly');
    expect((await stat(outside)).mode & 0o4000).toBe(0o4000);
    const attempt = run(outside, ['identity'], { ...nobody, cwd: '/' });
    await expect(attempt).rejects.toMatchObject({ code: 'EACCES' });
    await expect(run('ls', [dirname(outside)], { ...nobody, cwd: '/' })).rejects.toThrow('Permission denied');

    // The same file where users may go makes root of them.
    const reachable = join(rig.directory, 'reachable');
    await chmod(rig.directory, 0o755);
    await mkdir(reachable, { mode: 0o755 });
    const copy = join(reachable, 'rootly');
    await run('cp', ['-p', outside, copy]);
    const { stdout } = await run(copy, ['identity'], { ...nobody, cwd: '/' });
    expect(stepsOf(stdout)).toEqual({ root: 'ok', uid: '0' });
  });

  test('a setuid file lends its owner inside, and nothing with noNewPrivileges', async () => {
    const make = 'cp /attack /workspace/rootly && chmod 4755 /workspace/rootly';
    await guarded.run(make);
    await strict.run(make);
    const lent = await guarded.run(['/workspace/rootly', 'identity'], { user: 'user' });
    expect(stepsOf(lent.stdout)).toEqual({ root: 'ok', uid: '0' });
    const refused = await strict.run(['/workspace/rootly', 'identity'], { user: 'user' });
    expect(stepsOf(refused.stdout)).toEqual({ root: 'EPERM', uid: '1000' });
    expect(await status(strict)).toMatchObject({ NoNewPrivs: '1', CapEff: kept, Seccomp: '2' });
  });

  test('a setuid program gives a user no more than root inside has', async () => {
    await guarded.run('cp /bin/cat /workspace/rootcat && chmod 4755 /workspace/rootcat');
    const { stdout } = await guarded.run(['/workspace/rootcat', '/proc/self/status'], { user: 'user' });
    expect(stdout).toContain(`CapEff:\t${kept}`);
    expect(stdout).toContain('Seccomp:\t2');
  });

  const testSudo = testWith(requires.program('sudo'));

  testSudo('sudo works for the user, and is refused with noNewPrivileges', async () => {
    expect(await guarded.run(['sudo', '-n', 'id', '-u'], { user: 'user' })).toMatchObject({
      stdout: '0\n',
      exitCode: 0,
    });
    const refused = await strict.run(['sudo', '-n', 'id', '-u'], { user: 'user' });
    expect(refused).toMatchObject({ stdout: '' });
    expect(refused.exitCode).not.toBe(0);
  });

  test('a file capability lends no more than is kept', async () => {
    const netAdmin = '12';
    const lend = async (target: Target) => {
      await target.run(['cp', '/bin/cat', '/workspace/capcat']);
      expect(await target.attack('give-capability', '/workspace/capcat', netAdmin)).toEqual({ setxattr: 'ok' });
      return await target.run(['/workspace/capcat', '/proc/self/status'], { user: 'user' });
    };
    expect(await lend(guarded)).toMatchObject({ exitCode: 126, stdout: '' });
    const open = await rig.sandbox({ openGuards: ['capabilities', 'seccomp'] });
    expect((await lend(open)).stdout).toContain('CapEff:\t0000000000001000');
  });

  test('a stopped sandbox keeps its files from users of the machine too', async () => {
    const harness = await rig.node();
    const target = await rig.sandbox();
    await target.run('cp /attack /rootly && chmod 4755 /rootly');
    const { sandboxId } = target.sandbox.mark;
    await harness.node.stopSandbox({ sandboxId, generation: 1, graceMs: 0 });
    const outside = join(target.tree(), 'rootly');
    await expect(run(outside, ['identity'], { ...nobody, cwd: '/' })).rejects.toMatchObject({ code: 'EACCES' });
    const copy = join(rig.directory, 'copy-of-stopped');
    await chmod(rig.directory, 0o755);
    await copyFile(outside, copy);
    await chmod(copy, 0o4755);
    expect(stepsOf((await run(copy, ['identity'], { ...nobody, cwd: '/' })).stdout)).toMatchObject({ uid: '0' });
  });
});
