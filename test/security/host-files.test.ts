/** The machine's files and devices: nothing inside leads to them. */
import { execFile } from 'node:child_process';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AttackRig, type Target } from '../support/attack-rig.ts';
import { describeWith, requires } from '../support/requires.ts';

const run = promisify(execFile);

describeWith(
  requires.root,
  requires.cgroups,
  requires.compiler,
)("the machine's files", () => {
  let rig: AttackRig;
  let guarded: Target;
  /** Everything left out that can be: what then still holds is the file tree itself. */
  let open: Target;
  let secretPath: string;
  const secret = 'a secret of the machine';

  beforeAll(async () => {
    rig = await AttackRig.open();
    await chmod(rig.directory, 0o755);
    secretPath = join(rig.directory, 'secret');
    await writeFile(secretPath, secret, { mode: 0o644 });
    guarded = await rig.sandbox();
    open = await rig.sandbox({ openGuards: ['seccomp', 'capabilities', 'dumpable', 'masks'] });
  });

  afterAll(() => rig?.close());

  test('a file of the machine is under no path a command can name', async () => {
    const paths = (path: string) => [
      ...[
        path,
        `/../../../../..${path}`,
        `/proc/self/root${path}`,
        `/proc/self/cwd${path}`,
        `/proc/thread-self/root${path}`,
      ],
      ...[`/proc/1/root${path}`, `/proc/1/cwd${path}`, `/proc/self/../1/root${path}`, `/dev/fd/3${path}`],
    ];
    const { stdout: control } = await run('sh', [
      '-c',
      'cd /; for p; do cat $p; echo; done',
      '',
      ...paths(secretPath).slice(0, 5),
    ]);
    expect(control).toBe(`${secret}\n`.repeat(5));
    for (const target of [guarded, open]) {
      const script = `for p in ${paths(secretPath).join(' ')} /proc/[0-9]*/root${secretPath} /proc/1/fd/*${secretPath}; do cat $p; done 2>/dev/null`;
      expect((await target.run(script)).stdout).toBe('');
    }
  });

  test("the machine's accounts, homes and keys are not there", async () => {
    const shadow = await readFile('/etc/shadow', 'utf8');
    expect(shadow).toMatch(/^root:/);
    const inside = await guarded.run(
      'cat /etc/shadow /etc/passwd; ls -A /root /home /mnt /opt /srv /media; ls -A /sys',
    );
    for (const line of shadow.split('\n').filter((entry) => /^[^:]+:[^:*!]{4,}/.test(entry))) {
      expect(inside.stdout).not.toContain(line.split(':')[1]);
    }
    expect(inside.stdout.slice(inside.stdout.indexOf('/home:'))).toBe(
      '/home:\nuser\n\n/media:\n\n/mnt:\n\n/opt:\n\n/root:\n\n/srv:\n',
    );
  });

  test('the old way out of a chroot ends at the root of the sandbox', async () => {
    const jail = join(rig.directory, 'jail');
    await mkdir(jail);
    expect(await rig.attackHost('break-out', jail, secretPath)).toEqual({
      chroot: 'ok',
      up: 'ok',
      read: 'ok',
      content: secret,
    });
    for (const target of [guarded, open]) {
      expect(await target.attack('break-out', '-', secretPath)).toMatchObject({
        chroot: 'ok',
        up: 'ok',
        read: 'ENOENT',
      });
    }
  });

  test('a file of the machine cannot be opened by its handle', async () => {
    const { stdout } = await run(rig.program, ['handle-of', secretPath]);
    const handle = stdout.trim().split(' ');
    expect(await rig.attackHost('by-handle', rig.directory, ...handle)).toMatchObject({ read: 'ok', content: secret });
    // /run/atoll is of the same file system, whose every file has a handle.
    for (const mount of ['/run/atoll', '/', '/usr']) {
      expect(await guarded.attack('by-handle', mount, ...handle)).toEqual({ open_by_handle_at: 'EPERM' });
      expect((await open.attack('by-handle', mount, ...handle))['content']).toBeUndefined();
    }
  });

  test('a disk cannot be made a device and read', async () => {
    const list = 'for f in /dev/*; do if [ -b $f ]; then stat -Lc "%t %T" $f; fi; done';
    const { stdout } = await run('bash', ['-c', list]);
    const devices = stdout
      .trim()
      .split('\n')
      .map((line) => line.split(' ').map((hex) => String(Number.parseInt(hex, 16))));
    const tried = await Promise.all(
      devices.map((numbers) => rig.attackHost('device', join(rig.directory, `disk-${numbers.join('-')}`), ...numbers)),
    );
    // Some machines refuse their own root some of them.
    expect(tried).toContainEqual({ mknod: 'ok', open: 'ok', disk: 'ok' });
    const numbers = devices[tried.findIndex(({ disk }) => disk === 'ok')]!;
    for (const target of [guarded, open]) {
      for (const path of ['/disk', '/dev/disk', '/dev/shm/disk', '/run/disk', '/tmp/disk', '/usr/disk']) {
        const said = await target.attack('device', path, ...numbers);
        expect(said).toEqual({ mknod: 'EPERM', open: 'ENOENT', disk: 'ENOENT' });
      }
    }
  });

  test('a device that came with the files cannot be opened', async () => {
    // As if a layer had brought it along: made by the machine, where a command finds it.
    const target = await rig.sandbox();
    const path = join(target.tree(), 'workspace-device');
    await run('mknod', ['-m', '666', path, 'c', '1', '5']);
    expect((await run('head', ['-c', '1', path], { encoding: 'buffer' })).stdout).toEqual(Buffer.of(0));
    expect((await target.run(['head', '-c', '1', '/workspace-device'])).stderr).toContain('Permission denied');
  });

  test('/dev has nothing but the harmless devices', async () => {
    const list =
      'for f in $(find /dev | sort); do if [ ! -L $f ] && { [ -b $f ] || [ -c $f ]; }; then echo -n "$f "; fi; done';
    const inside = await guarded.run(list);
    expect(inside.stdout).toBe('/dev/full /dev/null /dev/pts/ptmx /dev/random /dev/tty /dev/urandom /dev/zero ');
    const host = await run('bash', ['-c', list]);
    expect(host.stdout.split(' ').length).toBeGreaterThan(inside.stdout.split(' ').length);
  });

  test('a command cannot write settings of the kernel', async () => {
    const ofTheMachine = ['kernel/core_pattern', 'vm/overcommit_memory', 'fs/file-max'].map(
      (name) => `/proc/sys/${name}`,
    );
    expect(Object.values(await rig.attackHost('open-to-write', ...ofTheMachine))).toEqual(['ok', 'ok', 'ok']);
    for (const target of [guarded, open]) {
      // Even without masks: they belong to an id that is not in the sandbox.
      expect(Object.values(await target.attack('open-to-write', ...ofTheMachine))).toEqual([
        'EACCES',
        'EACCES',
        'EACCES',
      ]);
    }
    const ofItsNamespaces = ['/proc/sys/kernel/shmmax', '/proc/sys/kernel/msgmax'];
    expect(Object.values(await guarded.attack('open-to-write', ...ofItsNamespaces))).toEqual(['EROFS', 'EROFS']);
    expect(Object.values(await open.attack('open-to-write', ...ofItsNamespaces))).toEqual(['ok', 'ok']);
  });

  test('a command cannot use sysrq', async () => {
    const path = '/proc/sysrq-trigger';
    expect(['EACCES', 'ENOENT', 'ok']).toContain((await guarded.attack('open-to-write', path))[path]);
    // Where the kernel has it, what is there is /dev/null.
    expect((await guarded.run(`test ! -e ${path} || test "$(stat -c %t:%T ${path})" = 1:3`)).exitCode).toBe(0);
  });

  test('masked files of /proc tell nothing', async () => {
    const list =
      'for f in kallsyms keys timer_list interrupts softirqs modules kcore sched_debug; do head -c 100 /proc/$f; done 2>/dev/null | wc -c';
    expect((await guarded.run(list)).stdout.trim()).toBe('0');
    expect(Number((await open.run(list)).stdout)).toBeGreaterThan(100);
    const directories =
      'ls -A /proc/acpi /proc/bus /proc/driver /proc/fs /proc/irq /proc/scsi 2>/dev/null | grep -v : | grep -c .';
    expect((await guarded.run(directories)).stdout.trim()).toBe('0');
    expect(Number((await open.run(directories)).stdout)).toBeGreaterThan(0);
  });

  test('a mask cannot be taken away', async () => {
    const masks = ['/proc/kallsyms', '/proc/sys', '/proc/irq'];
    const said = await guarded.attack('umount', ...masks);
    expect(Object.values(said)).toEqual(masks.map(() => 'EPERM'));
    const unmasked = await rig.sandbox({ openGuards: ['seccomp', 'capabilities'] });
    expect(Object.values(await unmasked.attack('umount', ...masks))).toEqual(masks.map(() => 'ok'));
  });

  test('a fresh /proc without masks cannot be mounted', async () => {
    expect(await guarded.attack('mount', 'none', '/mnt', 'proc', '0')).toEqual({ mount: 'EPERM' });
    expect(await open.attack('mount', 'none', '/mnt', 'proc', '0')).toEqual({ mount: 'ok' });
  });

  test('the mount table tells nothing of where the machine keeps things', async () => {
    const { stdout } = await guarded.run(['cat', '/proc/self/mountinfo', '/proc/1/mountinfo']);
    const lines = stdout.split('\n').filter((line) => line !== '' && !line.includes(' /run/atoll '));
    expect(lines.length).toBeGreaterThan(10);
    const data = join(guarded.directory(), '..', '..');
    expect(lines.filter((line) => line.includes(data) || line.includes('/layers') || line.includes('/work/'))).toEqual(
      [],
    );
    expect(await readFile('/proc/self/mountinfo', 'utf8')).toContain(' / / ');
  });
});
