/** What a sandbox may use: its limits hold, it cannot lift them, and running into them hurts nobody else. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PlatformError } from '../../src/protocol/index.ts';
import { AttackRig, type Target } from '../support/attack-rig.ts';
import { plainSpec, type TextOutcome } from '../support/node-orders.ts';
import { describeWith, requires } from '../support/requires.ts';

const mebibyte = 1024 * 1024;

describeWith(
  requires.root,
  requires.cgroups,
  requires.compiler,
)('the limits of a sandbox', () => {
  let rig: AttackRig;
  let small: Target;
  let large: Target;
  let neighbour: Target;

  const limited = (limits: Partial<typeof plainSpec.limits>) =>
    rig.sandbox({ spec: { limits: { ...plainSpec.limits, ...limits } } });

  beforeAll(async () => {
    rig = await AttackRig.open();
    small = await limited({ memoryBytes: 64 * mebibyte, processes: 48 });
    large = await limited({ memoryBytes: 512 * mebibyte, processes: 400 });
    neighbour = await rig.sandbox();
  });

  afterAll(() => rig?.close());

  const answers = async (target: Target) =>
    expect(await target.run(['echo', 'alive'])).toMatchObject({ stdout: 'alive\n', exitCode: 0 });

  test('a memory hog is ended at the limit; init, the neighbour and this process go on as before', async () => {
    const init = await small.initPid();
    const before = process.memoryUsage().rss;
    expect(await small.run(['/attack', 'hog', '256'])).toMatchObject({ signal: 'SIGKILL', outOfMemory: true });
    await answers(small);
    await answers(neighbour);
    expect(await small.initPid()).toBe(init);
    expect(process.memoryUsage().rss - before).toBeLessThan(128 * mebibyte);
    expect(await large.attack('hog', '256')).toEqual({ hog: 'ok' });
  });

  test('many hogs at once are ended too, and init goes on', async () => {
    const hogs = Array.from({ length: 8 }, () => small.run(['/attack', 'hog', '256']));
    for (const outcome of await Promise.all(hogs)) expect(outcome).toMatchObject({ signal: 'SIGKILL' });
    await answers(small);
  });

  test('memory of files is counted, and init outlives it when no process is left to end', async () => {
    const target = await limited({ memoryBytes: 64 * mebibyte });
    const init = await target.initPid();
    const fill = await target.run('head -c 256M /dev/zero > /dev/shm/full');
    expect(fill.exitCode).not.toBe(0);
    // The memory stays used after its writer is gone: what is started now meets the limit at its fork or later, or crawls for lack of cache.
    for (let i = 0; i < 3; i++) {
      const outcome = await target.run(['/attack', 'hog', '8'], { timeoutMs: 500 }).catch((error: unknown) => error);
      if (outcome instanceof PlatformError)
        expect(outcome).toMatchObject({ code: 'limit_exceeded', message: expect.stringContaining('memory limit') });
      else expect((outcome as TextOutcome).exitCode).toBeGreaterThan(128);
    }
    expect(await target.initPid()).toBe(init);
    await answers(neighbour);
    const control = await large.run('head -c 256M /dev/zero > /dev/shm/full && rm /dev/shm/full');
    expect(control.exitCode).toBe(0);
  });

  test('processes are limited, and the limit is counted over all commands', async () => {
    const said = await small.attack('forks', '200');
    expect(said).toMatchObject({ fork: 'EAGAIN' });
    expect(Number(said['made'])).toBeLessThan(48);
    expect(await large.attack('forks', '200')).toEqual({ fork: 'ok', made: '200' });
    await answers(small);
  });

  test('a fork bomb stays within its limit, is ended as a whole, and the next command runs', async () => {
    const target = await limited({ processes: 64 });
    const init = await target.initPid();
    const bomb = target.start(['/attack', 'bomb']);
    // Full when nothing more can be started: refused by the kernel, as an error or a shell that cannot fork.
    const isFull = async () =>
      target.run(['sh', '-c', '/attack calls kcmp; true']).then(
        ({ exitCode }) => exitCode !== 0,
        () => true,
      );
    while (!(await isFull()));
    await answers(neighbour);
    expect((await neighbour.attack('forks', '100'))['fork']).toBe('ok');
    await bomb.stop();
    await answers(target);
    expect(await target.initPid()).toBe(init);
    const left = async () => Number((await target.run(['sh', '-c', 'set -- /proc/[0-9]*; echo $#'])).stdout);
    await expect.poll(left, { timeout: 20_000 }).toBeLessThan(8);
  });

  test('a command cannot find, mount or write the groups that limit it', async () => {
    const found = await small.run(
      'find / -path /usr -prune -o -name memory.limit_in_bytes -print -o -name memory.max -print -o -name pids.max -print 2>/dev/null; ls /sys',
    );
    expect(found.stdout).toBe('');
    expect(await small.attack('mount', 'none', '/mnt', 'cgroup2', '0')).toEqual({ mount: 'EPERM' });
    expect(await small.attack('mount', 'none', '/mnt', 'cgroup', '0', 'memory')).toEqual({ mount: 'EPERM' });
    expect((await small.run('cat /proc/self/cgroup | cut -d: -f3 | sort -u')).stdout).toBe('/\n');

    const open = await rig.sandbox({ openGuards: ['seccomp', 'capabilities'] });
    const mounted = await open.attack('mount', 'none', '/mnt', 'cgroup2', '0');
    expect(mounted).toEqual({ mount: 'ok' });
    // Even so the files of its limits are not its own: shifted ids hold where the filter does not.
    const written = await open.run(
      'ls /mnt/cgroup.procs && for f in /mnt/*.max; do echo max > $f && echo lifted; done',
    );
    expect(written.stdout).toBe('/mnt/cgroup.procs\n');
  });

  test('a command cannot raise the limits of its own process', async () => {
    const said = await small.attack('raise');
    expect(said).toEqual({ nofile: 'EPERM', nproc: 'EPERM', memlock: 'EPERM', nice: 'EACCES' });
    const { stdout } = await promisify(execFile)('sh', ['-c', 'ulimit -Sn 100; ulimit -Sn 101; ulimit -Sn']);
    expect(stdout).toBe('101\n');
  });

  test('terminals used up in one sandbox are not missing in another or on the machine', async () => {
    const hoarder = small.start(['sh', '-c', 'sleep 300 | /attack use-up terminals hold > /tmp/terminals']);
    await untilGone(small, 'terminals', 'ENOSPC');
    expect(await neighbour.attack('take', 'terminals')).toEqual({ terminals: 'ok' });
    expect(await rig.attackHost('take', 'terminals')).toEqual({ terminals: 'ok' });
    await hoarder.stop();
    expect(await small.attack('take', 'terminals')).toEqual({ terminals: 'ok' });
  });

  test('inotify instances used up in one sandbox are not missing in another or on the machine', async () => {
    const hoarder = small.start(['sh', '-c', 'sleep 300 | /attack use-up inotify hold > /tmp/inotify']);
    await untilGone(small, 'inotify', 'EMFILE');
    expect(await neighbour.attack('take', 'inotify')).toEqual({ inotify: 'ok' });
    expect(await rig.attackHost('take', 'inotify')).toEqual({ inotify: 'ok' });
    await hoarder.stop();
    expect(await small.attack('take', 'inotify')).toEqual({ inotify: 'ok' });
  });

  test('descriptors are limited for each process', async () => {
    const said = await small.attack('use-up', 'files');
    expect(said).toMatchObject({ refused: 'EMFILE' });
    const most = Number((await readFile('/proc/sys/fs/file-max', 'utf8')).trim());
    expect(Number(said['made'])).toBeLessThan(most / 10);
    await answers(small);
  });
});

/**
 * The hoarder has them all: another command of the same sandbox, the control, gets none. It is asked only after the hoarder
 * said so: one that is taken while it still collects would be missing from its collection.
 */
async function untilGone(target: Target, what: string, error: string): Promise<void> {
  await expect
    .poll(() => target.run(['cat', `/tmp/${what}`]), { timeout: 30_000 })
    .toMatchObject({
      stdout: expect.stringContaining('made='),
    });
  expect(await target.attack('take', what)).toEqual({ [what]: error });
}
