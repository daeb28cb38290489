/** `atoll exec` in a checkout, without files being synced: resolution, lease, process, signals, output. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { CheckoutRig } from '../support/checkout-cli-rig.ts';
import { Platform } from '../support/platform.ts';
import { programPath } from '../support/program-path.ts';
import { requires, testWith } from '../support/requires.ts';
import { Screen } from '../support/tmux.ts';

const needs = [requires.root, requires.cgroups, requires.program('git')];
const test = testWith(...needs);
const cli = programPath('src/cli/main.ts');
/** Every command line is a process of its own, which takes seconds on a busy machine. */
const manyCommands = { timeout: 240_000 };
const within = { timeout: 60_000, interval: 50 };

let platform: Platform;
let rig: CheckoutRig;
let root: string;
let sandboxId: string;

beforeAll(async () => {
  platform = await Platform.start();
  rig = await CheckoutRig.open(platform);
  root = await rig.repository('main', { 'a.txt': 'a', 'deep/b.txt': 'b' });
  sandboxId = (await rig.json<{ id: string }>(root, ['start'])).id;
});
afterAll(async () => {
  await rig.close();
  await platform.close();
});

const exec = (...words: string[]) => ['exec', '--no-sync', ...words];
const leases = () => platform.client.leases.list({ resource: sandboxId });

test(
  'P0a, P27, P134, P135, P71: one sandbox for all directories of a checkout; words and exit code as they are',
  async () => {
    const first = await rig.run(root, exec('--', 'printf', '%s|', 'two words', '$HOME', "it's", ''));
    expect(first).toEqual({ code: 0, stdout: "two words|$HOME|it's||", stderr: '' });
    const deeper = await rig.run(join(root, 'deep'), exec('-c', 'echo err >&2; exit 7'));
    expect(deeper).toMatchObject({ code: 7, stdout: '', stderr: expect.stringContaining('err\n') });
    expect((await rig.json<{ id: string }>(root, ['info'])).id).toBe(sandboxId);
    expect(await leases()).toEqual([]);
  },
  manyCommands,
);

test(
  'P137, P136: the hint comes once, with the second command; commands are counted',
  async () => {
    const other = await rig.repository('hints');
    const said: boolean[] = [];
    for (let round = 0; round < 3; round++) {
      said.push((await rig.run(other, exec('--', 'true'))).stderr.includes('again, which keeps'));
    }
    expect(said).toEqual([false, true, false]);
    const { items } = await rig.json<{ items: { execCount: number; lastExecAt: string }[] }>(other, ['ls', '--here']);
    expect(items).toEqual([expect.objectContaining({ execCount: 3, lastExecAt: expect.stringMatching(/^20/) })]);
    await rig.run(other, ['rm', (items[0] as unknown as { id: string }).id]);
  },
  manyCommands,
);

test(
  'P140, P143: input is piped; each stream comes in order and whole; with --json stdout is one object with the output in it',
  async () => {
    const fed = await rig.run(root, exec('-i', '--', 'sh', '-c', 'cat; echo end'), { stdin: 'x'.repeat(200_000) });
    expect([fed.code, fed.stdout.length]).toEqual([0, 200_004]);
    const both = await rig.run(root, exec('-c', 'seq 1 20000 & seq 1 20000 >&2; wait'));
    const counted = `${Array.from({ length: 20_000 }, (_, index) => index + 1).join('\n')}\n`;
    expect([both.stdout === counted, both.stderr.endsWith(counted)]).toEqual([true, true]);
    const json = await rig.json(root, exec('-v', '--', 'sh', '-c', 'echo out; echo err >&2; exit 3'));
    expect(json).toMatchObject({ sandboxId, exitCode: 3, stdout: 'out\n', stderr: 'err\n', encoding: 'utf8' });
    const binary = await rig.json(root, exec('--', 'printf', '\\377'));
    expect(binary).toMatchObject({ stdout: '/w==', encoding: 'base64' });
  },
  manyCommands,
);

testWith(...needs, requires.program('tmux'))(
  'P140: with --tty the command has a terminal of our size, which follows ours; its exit code and --timeout count as without',
  async () => {
    const env = { ATOLL_DATA: join(platform.dataDirectory, 'server'), ATOLL_STATE: rig.state };
    await using screen = await Screen.open({ columns: 90, rows: 20, cwd: root, env });
    const atoll = `${process.execPath} ${cli} exec --no-sync --tty`;
    const shows = (text: string) => screen.shows((shown) => expect(shown).toContain(text));
    await screen.type(`${atoll} -c 'test -t 0 && stty size; read line; stty size; exit 7'; echo code=$?`, 'Enter');
    await shows('\n20 90');
    await screen.resize({ columns: 70, rows: 25 });
    await screen.type('go', 'Enter');
    await shows('\n25 70\ncode=7');
    await screen.type(`${atoll} --timeout 1s -- sleep 600; echo late=$?`, 'Enter');
    await shows('\nlate=124');
    expect(await leases()).toEqual([]);
  },
  manyCommands,
);

test(
  'P141: a command that takes too long is killed with all it started, and the exit code is 124',
  async () => {
    const late = await rig.run(root, exec('--timeout', '1500ms', '-c', 'sleep 987 & sleep 987'));
    expect(late.code).toBe(124);
    const sandbox = await platform.client.sandboxes.connect(sandboxId);
    await expect.poll(async () => (await sandbox.exec(['pgrep', '-f', 'sleep 987'])).exitCode, within).toBe(1);
  },
  manyCommands,
);

test(
  'P139, P82: the first Ctrl-C goes to the command and is waited for, the second ends it; the lease is free after both',
  async () => {
    const script = 'trap "echo heard; sleep 1; echo done; exit 0" INT; echo ready; while :; do sleep 0.1; done';
    const gentle = rig.spawn(root, exec('--', 'bash', '-c', script));
    await expect.poll(() => gentle.stdout, within).toContain('ready');
    gentle.child.kill('SIGINT');
    expect(await gentle.ended).toBe(130);
    expect(gentle.stdout).toContain('heard\ndone\n');
    const stubborn = rig.spawn(
      root,
      exec('--', 'bash', '-c', 'trap "echo no" INT TERM; echo ready; while :; do sleep 0.1; done'),
    );
    await expect.poll(() => stubborn.stdout, within).toContain('ready');
    stubborn.child.kill('SIGTERM');
    await expect.poll(() => stubborn.stdout, within).toContain('no');
    stubborn.child.kill('SIGTERM');
    expect(await stubborn.ended).toBe(143);
    expect(await leases()).toEqual([]);
  },
  manyCommands,
);

test(
  'P77, P79, P85, P86, P153: who waits is told who holds it and why; --no-wait refuses with the same; the order of steps is told, and so are the events',
  async () => {
    const { last: after } = await platform.client.events.list({ limit: 1 });
    const holder = rig.spawn(root, exec('-v', '-i', '--', 'sh', '-c', 'echo ready; read line; exit 4'));
    await expect.poll(() => holder.stdout, within).toContain('ready');
    const refused = await rig.run(root, ['--json', ...exec('--no-wait', '--', 'true')]);
    expect(refused.code).toBe(75);
    expect(JSON.parse(refused.stdout)).toMatchObject({
      error: {
        code: 'lease_held',
        details: { holder: expect.stringContaining('tester'), reason: expect.stringContaining('sh -c') },
      },
    });
    const waiting = rig.spawn(root, exec('--', 'echo', 'mine'));
    await expect.poll(() => waiting.stderr, within).toMatch(/held by tester \(pid \d+\) for \d+s: sh -c echo ready/);
    // Looking needs no lease.
    expect((await rig.run(root, ['ps'])).code).toBe(0);
    holder.child.stdin?.end('go\n');
    expect(await holder.ended).toBe(4);
    expect(await waiting.ended).toBe(0);
    expect(waiting.stdout).toBe('mine\n');
    const steps = holder.stderr.split('\n').filter((line) => line.startsWith('atoll: lease'));
    expect(steps).toEqual(['atoll: lease requested', 'atoll: lease granted', 'atoll: lease released']);
    const { items } = await platform.client.events.list({ after, sandboxId, limit: 1_000 });
    const leaseEvents = (pid: number | undefined) =>
      items.filter(({ data }) => data['holder'] === `tester (pid ${pid})`).map(({ kind }) => kind);
    expect(leaseEvents(holder.child.pid)).toEqual(['lease.requested', 'lease.granted', 'lease.released']);
    const order = items.map(({ kind, data }) => `${kind} ${data['holder']}`);
    const [first, second] = [holder, waiting].map(({ child }) => `tester (pid ${child.pid})`);
    expect(order.indexOf(`lease.granted ${second}`)).toBeGreaterThan(order.indexOf(`lease.released ${first}`));
  },
  manyCommands,
);

test(
  'P142, P82: a client that is killed leaves the command running, which is found again by id; its lease ends by itself',
  async () => {
    const left = (await rig.run(root, exec('-d', '-c', 'echo begun; sleep 3; echo late; exit 9'))).stdout.trim();
    expect(left).toMatch(/^prc[a-z0-9]{20}$/);
    const attached = await rig.run(root, exec('--attach', left));
    expect(attached).toMatchObject({ code: 9, stdout: 'begun\nlate\n' });
    const doomed = rig.spawn(root, exec('--', 'sh', '-c', 'echo ready; sleep 2; echo survived > /tmp/survived'));
    await expect.poll(() => doomed.stdout, within).toContain('ready');
    doomed.child.kill('SIGKILL');
    await doomed.ended;
    const next = await rig.run(root, exec('--', 'cat', '/tmp/survived'));
    expect(next).toMatchObject({ code: 0, stdout: 'survived\n' });
    expect(await leases()).toEqual([]);
  },
  manyCommands,
);

test(
  'P83: a client that slept past its lease is refused, and says so',
  async () => {
    const sleeper = rig.spawn(root, exec('-i', '--', 'sh', '-c', 'echo ready; read line; echo got'));
    await expect.poll(() => sleeper.stdout, within).toContain('ready');
    sleeper.child.kill('SIGSTOP');
    const [lease] = await leases();
    await platform.client.leases.release(lease!.id);
    const other = rig.spawn(root, exec('-i', '--', 'sh', '-c', 'echo other; read line'));
    await expect.poll(() => other.stdout, within).toContain('other');
    sleeper.child.kill('SIGCONT');
    expect(await sleeper.ended).toBe(73);
    expect(sleeper.stderr).toContain('lease_lost');
    expect(sleeper.stdout).not.toContain('got');
    other.child.stdin?.end('x\n');
    expect(await other.ended).toBe(0);
  },
  manyCommands,
);

test(
  'P56, P28: set-up runs once per content; a step that fails is told with its end, and the sandbox is not used again',
  async () => {
    const project = await rig.repository('set-up');
    const define = (text: string) => writeFile(join(project, 'atoll.yml'), text);
    await define('setup:\n  - echo done >> /tmp/steps\nenv: { GIVEN: yes }\nports: [3456]\n');
    await rig.run(project, exec('--', 'true'));
    const again = await rig.run(project, exec('-c', 'cat /tmp/steps; echo $GIVEN'));
    expect(again.stdout).toBe('done\nyes\n');
    const before = (await rig.json<{ id: string }>(project, ['info'])).id;
    const { exposed } = await (await platform.client.sandboxes.connect(before)).ports.list();
    expect(exposed.map(({ port }) => port)).toEqual([3456]);
    await define('setup:\n  - echo done >> /tmp/steps\n  - echo broken thing; exit 5\n');
    const failed = await rig.run(project, exec('--', 'true'));
    expect(failed.code).toBe(73);
    expect(failed.stderr).toMatch(/set-up step "echo broken thing; exit 5" ended with 5\.\nbroken thing/);
    await define('setup:\n  - echo fixed >> /tmp/steps\n');
    const fixed = await rig.run(project, exec('--', 'cat', '/tmp/steps'));
    expect(fixed).toMatchObject({ code: 0, stdout: 'fixed\n' });
    expect(fixed.stderr).toContain(`${before} is not used again`);
    await define('limts: {}\n');
    const mistaken = await rig.run(project, exec('--', 'true'));
    expect(mistaken).toMatchObject({ code: 65, stderr: expect.stringContaining('atoll.yml:1:1') });
  },
  manyCommands,
);

test(
  'P0c: a name is checked first, start replaces, restart changes the pid and keeps the address, early death shows the output',
  async () => {
    expect(
      (await rig.run(root, ['bg', 'start', 'Not Good', '--run', 'true'], { env: { ATOLL_DATA: '/nowhere' } })).stderr,
    ).toContain('A name is 1 to 40');
    const serve = 'exec python3 -m http.server 8123 --bind 127.0.0.1';
    const start = (verb: string) =>
      rig.json<{ url: string; process: { pid: number; id: string } }>(root, [
        'bg',
        verb,
        'web',
        '--no-sync',
        '--run',
        serve,
        '--port',
        '8123',
      ]);
    const first = await start('start');
    const second = await start('restart');
    expect(second.url).toBe(first.url);
    expect(second.process.pid).not.toBe(first.process.pid);
    expect((await rig.run(root, ['bg', 'ls'])).stdout).toMatch(/web\s+\d+\s+running/);
    expect((await rig.run(root, ['bg', 'stop', 'web'])).code).toBe(0);
    expect((await rig.run(root, ['bg', 'stop', 'web'])).code).toBe(66);
    const died = await rig.run(root, [
      'bg',
      'start',
      'bad',
      '--no-sync',
      '--run',
      'echo why it died; exit 3',
      '--port',
      '8124',
    ]);
    expect(died.code).not.toBe(0);
    expect(died.stderr).toContain('why it died');
    expect((await rig.run(root, ['bg', 'logs', 'bad'])).stdout).toBe('why it died\n');
  },
  manyCommands,
);

test(
  'P144, P34, P29, P66: commands that need a sandbox never make one, and say what to do next',
  async () => {
    const empty = await rig.repository('empty');
    for (const words of [['stop'], ['info'], ['ps'], ['bg', 'ls'], ['sh']]) {
      expect(await rig.run(empty, words)).toMatchObject({
        code: 66,
        stderr: expect.stringContaining('has no sandbox yet'),
      });
    }
    expect(await rig.json(empty, ['ls', '--here'])).toEqual({ items: [] });
    const dead = await rig.run(empty, ['exec', `sbx${'a'.repeat(20)}`, '--', 'true']);
    expect(dead.code).toBe(66);
    expect(await rig.json(empty, ['ls', '--here'])).toEqual({ items: [] });
    await mkdir(join(rig.directory, 'plain', 'inner'), { recursive: true });
    expect((await rig.run(join(rig.directory, 'plain'), exec('--', 'echo', 'plain'))).stdout).toBe('plain\n');
  },
  manyCommands,
);
