/** What a command is born with: three descriptors, its own environment, and nothing of whoever started it. */
import { execFile, spawn } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AttackRig, type Target } from '../support/attack-rig.ts';
import { describeWith, requires } from '../support/requires.ts';

const secret = 'ATOLL_ATTACK_SECRET';

describeWith(
  requires.root,
  requires.cgroups,
  requires.compiler,
)('what a command is born with', () => {
  let rig: AttackRig;
  let guarded: Target;

  beforeAll(async () => {
    // Before the spawner starts: it inherits what this process has.
    process.env[secret] = 'from the daemon';
    rig = await AttackRig.open();
    guarded = await rig.sandbox();
  });

  afterAll(async () => {
    delete process.env[secret];
    await rig?.close();
  });

  test('no descriptor of init or the daemon reaches a command', async () => {
    expect((await guarded.run(['/attack', 'descriptors'])).stdout).toBe('0\n1\n2\n');
    expect((await guarded.run('exec /attack descriptors')).stdout).toBe('0\n1\n2\n');
    expect((await guarded.run(['/attack', 'descriptors'], { stdin: Buffer.from('x') })).stdout).toBe('0\n1\n2\n');
    expect((await guarded.run(['/attack', 'descriptors'], { user: 'user' })).stdout).toBe('0\n1\n2\n');
    const child = spawn(rig.program, ['descriptors'], { stdio: ['ignore', 'pipe', 'inherit', 'pipe', 'pipe'] });
    expect(await text(child.stdout!)).toContain('0\n1\n2\n3\n4\n');
  });

  test('nor while many commands start at once', async () => {
    const outcomes = await Promise.all(Array.from({ length: 32 }, () => guarded.run(['/attack', 'descriptors'])));
    for (const { stdout } of outcomes) expect(stdout).toBe('0\n1\n2\n');
  });

  test("a descriptor that a command leaves open does not reach the next one's", async () => {
    await guarded.run('sleep 300 9>/tmp/left &');
    expect((await guarded.run(['/attack', 'descriptors'])).stdout).toBe('0\n1\n2\n');
    const within = await guarded.run('exec 9>/tmp/left; /attack descriptors');
    expect(within.stdout).toContain('9\n');
  });

  test('the environment of the daemon is not the environment of a command, nor anywhere to be read', async () => {
    const { stdout: control } = await promisify(execFile)('env');
    expect(control).toContain(secret);
    const seen = await guarded.run(
      `env; tr '\\0' '\\n' < /proc/1/environ; cat /proc/1/cmdline; grep -l ${secret} /proc/[0-9]*/environ`,
    );
    expect(seen.stdout).not.toContain('from the daemon');
    expect(seen.stdout).not.toContain('/environ');
    // Where init can be read, its environment is empty too.
    const open = await rig.sandbox({ openGuards: ['seccomp', 'capabilities', 'dumpable', 'masks'] });
    const init = await open.run("tr -d '\\0' < /proc/1/environ | wc -c; tr -d '\\0' < /proc/1/cmdline | wc -c");
    expect(init.stdout.trim().split(/\s+/)).toEqual(['0', '0']);
    const outside = await readFile(`/proc/${await guarded.initPid()}/environ`, 'utf8');
    expect(outside.replaceAll('\0', '')).toBe('');
  });

  test('/run/atoll can be read and not changed', async () => {
    const file = join(guarded.directory(), 'shared', 'metadata.json');
    const before = await readFile(file, 'utf8');
    expect((await guarded.run(['cat', '/run/atoll/metadata.json'])).stdout).toBe(before);
    const attempts = [
      'echo x > /run/atoll/metadata.json',
      'echo x > /run/atoll/new',
      'rm -f /run/atoll/metadata.json',
      'mv /run/atoll /run/other',
      'rmdir /run/atoll',
      'chmod 777 /run/atoll/metadata.json',
      'ln /run/atoll/metadata.json /run/hard',
    ];
    for (const attempt of attempts) expect((await guarded.run(attempt)).exitCode, attempt).not.toBe(0);
    const remount = await guarded.attack('mount', 'none', '/run/atoll', 'none', String(32 | 4096));
    expect(remount).toEqual({ mount: 'EPERM' });
    expect(await readFile(file, 'utf8')).toBe(before);
    // The machine writes it, and the sandbox sees that at once; next to it root inside writes as it likes.
    await writeFile(join(guarded.directory(), 'shared', 'new'), 'by the machine');
    expect((await guarded.run('cat /run/atoll/new && echo x > /run/next && rm /run/next')).stdout).toBe(
      'by the machine',
    );
  });

  test('/run/atoll stays read-only for a command with every capability and no filter', async () => {
    const open = await rig.sandbox({ openGuards: ['seccomp', 'capabilities'] });
    const remount = String(32 | 4096);
    expect(await open.attack('mount', 'none', '/run/atoll', 'none', remount)).toEqual({ mount: 'EPERM' });
    expect(await open.attack('mount', 'none', '/dev/shm', 'none', String(32 | 4096 | 1))).toEqual({ mount: 'ok' });
    expect((await open.run('echo x > /run/atoll/metadata.json')).exitCode).not.toBe(0);
  });

  test('a command that ends its stdin early or never reads it does not hurt init', async () => {
    const stdin = Buffer.alloc(4 * 1024 * 1024, 'x');
    // Many times: what goes wrong here is a race between the last bytes in and the last frame out.
    for (let i = 0; i < 20; i++) {
      for (const command of ['exec 0<&-; echo done', 'head -c 10 > /dev/null; echo done']) {
        expect(await guarded.run(command, { stdin })).toMatchObject({ stdout: 'done\n', exitCode: 0 });
      }
    }
    expect((await guarded.run(['wc', '-c'], { stdin })).stdout.trim()).toBe(String(stdin.byteLength));
  });

  test('a command cannot fill the memory of this process with output nobody asked for', async () => {
    const before = process.memoryUsage().rss;
    const outcome = await guarded.run('head -c 300M /dev/zero; head -c 300M /dev/zero >&2', { outputLimitBytes: 1000 });
    expect(outcome).toMatchObject({ stdoutTruncated: true, stderrTruncated: true, exitCode: 0 });
    expect(process.memoryUsage().rss - before).toBeLessThan(150 * 1024 * 1024);
  });
});
