/** Init as a process among those it serves: nobody inside reads it, enters it, ends it or changes its program. */
import { createHash } from 'node:crypto';
import { copyFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { OpenGuard } from '../../src/isolation/index.ts';
import { AttackRig, type Steps, type Target } from '../support/attack-rig.ts';
import { initProgram } from '../support/node-harness.ts';
import { describeWith, requires } from '../support/requires.ts';

const everyGuard = ['seccomp', 'capabilities', 'dumpable', 'masks'] as const satisfies OpenGuard[];

describeWith(
  requires.root,
  requires.cgroups,
  requires.compiler,
)('init', () => {
  let rig: AttackRig;
  let guarded: Target;
  /** Only that init is not dumpable stands between its memory and a command with every capability. */
  let dumpableOnly: Target;
  /** Only that init has capabilities which commands lack. */
  let capabilitiesOnly: Target;
  let open: Target;

  beforeAll(async () => {
    rig = await AttackRig.open();
    guarded = await rig.sandbox();
    dumpableOnly = await rig.sandbox({ openGuards: ['seccomp', 'capabilities', 'masks'] });
    capabilitiesOnly = await rig.sandbox({ openGuards: ['seccomp', 'dumpable', 'masks'] });
    open = await rig.sandbox({ openGuards: everyGuard });
  });

  afterAll(() => rig?.close());

  test('a command cannot read the memory, environment, descriptors or links of init', async () => {
    const control = await open.attack('look', '1');
    const secrets = [
      'mem',
      'environ',
      'maps',
      'auxv',
      'io',
      'exe',
      'cwd',
      'root',
      'ns/mnt',
      'fd',
      'fdinfo',
      'map_files',
    ];
    expect(pick(control, secrets)).toEqual(all(secrets, 'ok'));
    for (const target of [guarded, dumpableOnly, capabilitiesOnly]) {
      const said = await target.attack('look', '1');
      const readable = Object.keys(said).filter((step) => said[step] === 'ok');
      expect(readable, JSON.stringify(said)).toEqual([]);
    }
  });

  test('a command cannot look at init through one of its threads', async () => {
    const look = 'cd /proc/1/task && for t in *; do cat $t/environ $t/mem; readlink $t/exe $t/fd/*; ls $t/root/; done';
    const control = await open.run(`${look} 2>/dev/null | wc -c`);
    expect(Number(control.stdout)).toBeGreaterThan(0);
    for (const target of [guarded, dumpableOnly, capabilitiesOnly]) {
      expect((await target.run(`${look} 2>/dev/null | wc -c`)).stdout.trim()).toBe('0');
    }
  });

  test('a command cannot write the memory of init', async () => {
    for (const target of [guarded, dumpableOnly, capabilitiesOnly]) {
      expect((await target.attack('write-memory', '1'))['mem']).toBe('EACCES');
    }
    expect(await open.attack('write-memory', '1')).toEqual({ mem: 'ok' });
  });

  test('a command cannot attach to init, read it across processes or take a descriptor of it', async () => {
    const steps = ['process_vm_readv', 'pidfd_getfd', 'PTRACE_SEIZE', 'PTRACE_ATTACH'];
    for (const target of [guarded, dumpableOnly, capabilitiesOnly]) {
      expect(await target.attack('enter', '1')).toEqual(all(steps, 'EPERM'));
    }
    const control = await open.attack('enter', '1');
    expect(pick(control, ['process_vm_readv', 'pidfd_getfd', 'PTRACE_SEIZE'])).toEqual(all(steps.slice(0, 3), 'ok'));
    expect(await open.run(['echo', 'alive'])).toMatchObject({ stdout: 'alive\n' });
  });

  test('a signal from inside neither ends nor stops init', async () => {
    const sleeper = guarded.start(['sleep', '300']);
    const pid = await pidOf(guarded, 'sleep');
    expect(await guarded.attack('signals', '1', '9', '19', '15', '1', '2', '3', '6', '11', '13', '17')).toMatchObject({
      9: 'ok',
    });
    expect(await guarded.run(['echo', 'alive'])).toMatchObject({ stdout: 'alive\n', exitCode: 0 });
    // The same signal ends a process that is not init, and init itself when the machine sends it.
    await guarded.attack('signals', String(pid), '9');
    expect(await sleeper.ended).toMatchObject({ signal: 'SIGKILL', killed: false });
    const victim = await rig.sandbox();
    process.kill(await victim.initPid(), 'SIGKILL');
    await expect(victim.run(['true'])).rejects.toMatchObject({ code: expect.stringMatching(/^(sandbox|outcome)_/) });
  });

  test('killing everything leaves init, and the next command runs', async () => {
    const sleeper = guarded.start(['sleep', '300']);
    await pidOf(guarded, 'sleep');
    const killer = await guarded.run('kill -9 -1; echo survived');
    // Bash itself is spared by kill(-1); the sleeper, its neighbour, is the control.
    expect(killer).toMatchObject({ exitCode: 0, stdout: 'survived\n' });
    expect(await sleeper.ended).toMatchObject({ signal: 'SIGKILL' });
    expect(await guarded.run(['echo', 'alive'])).toMatchObject({ stdout: 'alive\n' });
  });

  test('a command that kills itself and everything else has an outcome', async () => {
    const killer = await guarded.run(['perl', '-e', 'kill 9, -1; kill 9, $$; sleep 60']);
    expect(killer).toMatchObject({ signal: 'SIGKILL', timedOut: false });
    expect(await guarded.run(['echo', 'alive'])).toMatchObject({ stdout: 'alive\n' });
  });

  test('a command cannot change the program of init, not even by running it', async () => {
    const digest = async () =>
      createHash('sha256')
        .update(await readFile(initProgram))
        .digest('hex');
    const before = await digest();
    // Between fork and execve a command is a copy of init, so a link to "my own program" runs init's file: this is how
    // runc was overwritten in 2019.
    await guarded.run(['ln', '-s', '/proc/self/exe', '/bin/trap']);
    const attack = guarded.attack('overwrite', 'atoll-init');
    let isOver = false;
    void attack.finally(() => (isOver = true)).catch(() => {});
    while (!isOver) await guarded.run(['/bin/trap']);
    expect(await attack).toEqual({ read: 'ok', write: 'EACCES' });
    expect(await digest()).toBe(before);

    const victim = join(rig.directory, 'attack-victim');
    await copyFile('/bin/sleep', victim);
    rig.spawnOnHost(victim, ['300']);
    expect(await rig.attackHost('overwrite', 'attack-victim')).toEqual({ read: 'ok', write: 'ok' });
  });
});

async function pidOf(target: Target, name: string): Promise<number> {
  // Waits for the event itself: the command is there as soon as its name is.
  const found = await target.run(`until pgrep -x ${name}; do :; done`);
  return Number(found.stdout.trim().split('\n')[0]);
}

function all(names: readonly string[], said: string): Steps {
  return Object.fromEntries(names.map((name) => [name, said]));
}

function pick(steps: Steps, names: readonly string[]): Steps {
  return Object.fromEntries(names.map((name) => [name, steps[name] ?? 'absent']));
}
