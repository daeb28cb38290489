/** Terminals and the death of server or node: the shell goes on, there is one of it, and nobody misses or repeats a byte. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import { isPlatformError } from '../../src/protocol/index.ts';
import type { Sandbox, Terminal } from '../../src/sdk/index.ts';
import { briskSettings, impatient, interrupted, patience, untilAnswered } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
const limits = { timeout: 180_000 };
const shell = { command: ['/bin/bash', '--norc', '--noprofile', '--noediting'], env: { PS1: '$ ' } };

let platform: Platform;
let id: string;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: briskSettings });
  id = (await platform.client.sandboxes.create()).id;
});
afterAll(() => platform.close());

const sandboxNow = () => untilAnswered(() => platform.client.sandboxes.connect(id));
const numbers = (count: number) => Array.from({ length: count }, (_, i) => `${i + 1}\n`).join('');

function reading(terminal: Terminal): { text: string } {
  const seen = { text: '' };
  terminal.onData((bytes) => {
    seen.text += Buffer.from(bytes).toString();
  });
  return seen;
}
const until = (check: () => void) => vi.waitFor(check, patience);

/** Counts on while a file is not there, each number once. */
function counter(stop: string) {
  const script = `stty -echo -opost; i=0; while [ ! -e ${stop} ]; do i=$((i + 1)); echo $i; sleep 0.002; done; echo total=$i; read x`;
  return { command: ['bash', '-c', script] };
}

const countOf = (text: string) => Number(/total=(\d+)/.exec(text)?.[1]);

test(
  'E108: E106: a shell survives a server that is killed; the client that comes back has every byte once',
  async () => {
    const stop = `/root/${randomUUID()}`;
    const terminal = await (await sandboxNow()).terminals.open({ id: 'count', ...counter(stop) });
    const before = reading(terminal);
    await until(() => expect(before.text).toContain('\n50\n'));
    await platform.killServer();
    const { cursor } = terminal;
    const seenAtDeath = before.text;
    terminal.close();
    await platform.startServer();
    const sandbox = await sandboxNow();
    const again = await sandbox.terminals.attach('count', { cursor: cursor! });
    expect(again.view.pid).toBe(terminal.view.pid);
    const after = reading(again);
    await until(() => expect(after.text.length).toBeGreaterThan(100));
    await sandbox.exec(['touch', stop]);
    await until(() => expect(after.text).toContain('total='));
    const text = seenAtDeath + after.text;
    expect(text).toBe(`${numbers(countOf(text))}total=${countOf(text)}\n`);
    await again.destroy();
  },
  limits,
);

test(
  'E108: E106: a shell survives a node that is killed; its client comes back by itself, with every byte once',
  async () => {
    const stop = `/root/${randomUUID()}`;
    const sandbox = await sandboxNow();
    const terminal = await sandbox.terminals.open(counter(stop));
    const seen = reading(terminal);
    await until(() => expect(seen.text).toContain('\n50\n'));
    const { pid } = terminal.view;
    for (let round = 0; round < 2; round++) {
      await platform.killNode();
      await platform.startNode();
      const { length } = seen.text;
      await until(() => expect(seen.text.length).toBeGreaterThan(length + 100));
    }
    expect(await untilAnswered(() => sandbox.terminals.get(terminal.id))).toMatchObject({ pid, running: true });
    await untilAnswered(() => sandbox.exec(['touch', stop]));
    await until(() => expect(seen.text).toContain('total='));
    expect(seen.text).toBe(`${numbers(countOf(seen.text))}total=${countOf(seen.text)}\n`);
    // And what is typed arrives.
    terminal.write('\n');
    expect(await terminal.exited).toMatchObject({ exitCode: 0 });
    await terminal.destroy();
  },
  limits,
);

test(
  'E109: a shell that ended while server and node were dead tells its exit code to who comes back',
  async () => {
    const sandbox = await sandboxNow();
    const stop = `/root/${randomUUID()}`;
    const command = ['bash', '-c', `while [ ! -e ${stop} ]; do sleep 0.05; done; echo last words; exit 23`];
    const terminal = await sandbox.terminals.open({ id: 'ended', command });
    // It is told to end by a process that nobody watches either.
    await sandbox.processes.start(`sleep 1; touch ${stop}`);
    terminal.close();
    await platform.killServer();
    await platform.killNode();
    await platform.startNode();
    await platform.startServer();
    const again = await untilAnswered(async () => (await sandboxNow()).terminals.attach(terminal.id));
    const seen = reading(again);
    expect(await again.exited).toMatchObject({ exitCode: 23 });
    expect(seen.text).toBe('last words\r\n');
    await again.destroy();
  },
  limits,
);

const nodePoints = [
  'node-terminal-before-record',
  'node-terminal-before-start',
  'node-terminal-after-start',
  'node-terminal-before-answer',
];
for (const point of nodePoints) {
  test(
    `E104: a node killed at "${point}" of an open: there is one pty when it is asked for again`,
    async () => {
      await platform.killNode();
      await platform.startNode(`${point}=crash`);
      const name = `once-${randomUUID()}`;
      const sandbox = await untilAnswered(() => impatient(platform).sandboxes.connect(id));
      const lost = untilAdmitted(() => sandbox.terminals.open({ id: name, ...shell }));
      expect(await interrupted(platform.node!, lost)).toEqual({ code: 'outcome_unknown' });
      await platform.startNode();
      await expectOne(await sandboxNow(), name);
    },
    limits,
  );
}

for (const point of ['before-terminal-on-node', 'after-terminal-on-node']) {
  test(
    `E104: a server killed at "${point}" of an open: there is one pty when it is asked for again`,
    async () => {
      await platform.restartServer(`${point}=crash`);
      const name = `once-${randomUUID()}`;
      const sandbox = await untilAnswered(() => impatient(platform).sandboxes.connect(id));
      await interrupted(platform.server, sandbox.terminals.open({ id: name, ...shell }));
      await platform.startServer();
      await expectOne(await sandboxNow(), name);
    },
    limits,
  );
}

async function expectOne(sandbox: Sandbox, name: string): Promise<void> {
  const terminals = await untilAnswered(() =>
    Promise.all(Array.from({ length: 4 }, () => sandbox.terminals.open({ id: name, ...shell }))),
  );
  expect(new Set(terminals.map((terminal) => terminal.id)).size).toBe(1);
  const { stdout } = await sandbox.exec(['pgrep', '-xc', 'bash']);
  expect(stdout.trim()).toBe('1');
  const seen = reading(terminals[0]!);
  terminals[3]!.write('echo works $((40 + 2))\n');
  await until(() => expect(seen.text).toContain('works 42'));
  for (const terminal of terminals) terminal.close();
  await terminals[0]!.destroy();
}

/** A node that has just been started may not be reached yet: that is no answer to the question of this test. */
async function untilAdmitted<Result>(ask: () => Promise<Result>): Promise<Result> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (!isPlatformError(error, 'node_unavailable', 'sandbox_unavailable')) throw error;
    }
  }
}
