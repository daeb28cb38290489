/** What the processes of every NodeApi do, called directly or over HTTP: the rules of protocol/node-processes.ts. */
import { rm, stat } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import {
  type FollowProcessOrder,
  type NodeApi,
  type NodeProcess,
  type NodeSandbox,
  newId,
  type ProcessItem,
  type StartProcessOrder,
} from '../../src/protocol/index.ts';
import type { NodeUnderTest } from '../support/node-harness.ts';
import { createOrder, lifeOf, plainSettings, run } from '../support/node-orders.ts';

const { SIGKILL, SIGTERM } = constants.signals;
const patience = { timeout: 30_000 };
const waitMs = 30_000;

export function nodeProcessesContract(open: () => Promise<NodeUnderTest>): void {
  let harness: NodeUnderTest;
  let sandbox: NodeSandbox;
  const node = (): NodeApi => harness.node;

  beforeAll(async () => {
    harness = await open();
    sandbox = await node().createSandbox(createOrder());
  });
  afterAll(() => harness?.close());

  const orderOf = (
    command: StartProcessOrder['command'],
    more: Partial<StartProcessOrder> = {},
  ): StartProcessOrder => ({
    ...lifeOf(sandbox),
    ...{ processId: newId('process'), name: null, leaseToken: null, command, cwd: null, env: {}, user: null },
    ...{ stdinOpen: false, timeoutMs: null, graceMs: 1_000, keepBytes: 1024 * 1024, autoCleanup: false },
    ...more,
  });
  const start = (command: StartProcessOrder['command'], more?: Partial<StartProcessOrder>) =>
    node().startProcess(orderOf(command, more));
  const named = ({ processId, generation }: NodeProcess) => ({
    ...{ sandboxId: sandbox.mark.sandboxId, generation, process: processId as string },
  });
  const changeOf = (process: NodeProcess) => ({ ...named(process), leaseToken: null });
  const wait = (process: NodeProcess, what: 'exit' | 'tree' = 'tree', timeoutMs = waitMs) =>
    node().waitProcess({ ...named(process), for: what, timeoutMs }, new AbortController().signal);
  const kill = (process: NodeProcess) =>
    node().signalProcess({ ...changeOf(process), signal: SIGKILL, target: 'tree', graceMs: null });

  async function itemsOf(process: NodeProcess, from: Partial<FollowProcessOrder> = {}): Promise<ProcessItem[]> {
    const order = { ...named(process), cursor: 0, live: true, ...from };
    const items: ProcessItem[] = [];
    for await (const item of node().followProcess(order, new AbortController().signal)) items.push(item);
    return items;
  }
  const textOf = (items: readonly ProcessItem[], stream = 'stdout') =>
    items
      .map((item) => (item.kind === 'output' && item.stream === stream ? Buffer.from(item.bytes).toString() : ''))
      .join('');

  test('a start answers with what runs; repeated with the same id it starts nothing, also after a restart', async () => {
    const order = orderOf('echo once >> /tmp/starts; sleep 600', { cwd: '/tmp' });
    const first = await node().startProcess(order);
    expect(first).toMatchObject({ processId: order.processId, generation: 1, cwd: '/tmp', exit: null });
    expect((await run(node(), sandbox, ['kill', '-0', String(first.pid)])).exitCode).toBe(0);
    const again = await Promise.all([node().startProcess(order), node().startProcess(order)]);
    await harness.restart();
    for (const process of [...again, await node().startProcess(order)]) expect(process.pid).toBe(first.pid);
    expect((await run(node(), sandbox, 'cat /tmp/starts')).stdout).toBe('once\n');
    await kill(first);
  });

  test('the files of the next process are made ahead; when they are gone they are made as they are needed', async () => {
    const directory = join(harness.dataDirectory, 'sandboxes', sandbox.mark.sandboxId);
    const record = (name: string) => join(directory, 'processes', name);
    const segment = (name: string) => join(directory, 'journals', name, '0'.repeat(16));
    const inodes = async (...paths: string[]) =>
      (await Promise.all(paths.map((path) => stat(path)))).map(({ ino }) => ino);
    await wait(await start('true'));
    // A file is seen before whoever made it knows that it is there: then the next start takes it.
    const next = await vi.waitFor(async () => {
      const ahead = await inodes(record('.spare'), segment('.spare'));
      const started = await start('echo said');
      expect(await inodes(record(`${started.processId}.json`), segment(started.processId))).toEqual(ahead);
      return started;
    }, patience);
    expect(textOf(await itemsOf(next))).toBe('said\n');

    await vi.waitFor(() => inodes(record('.spare'), segment('.spare')), patience);
    await rm(record('.spare'));
    await rm(join(directory, 'journals', '.spare'), { recursive: true });
    expect(textOf(await itemsOf(await start('echo again')))).toBe('again\n');
  });

  test('what cannot be started is refused by name and leaves no record', async () => {
    const before = (await node().listProcesses({ ...lifeOf(sandbox), sessionId: null, after: null, limit: 100 })).items
      .length;
    const refused = { code: 'process_not_startable' };
    await expect(start(['/no/such/program'])).rejects.toMatchObject(refused);
    await expect(start(['true'], { cwd: '/no/where' })).rejects.toMatchObject({ code: 'cwd_not_usable' });
    await expect(start(['true'], { user: 'nobody-here' })).rejects.toMatchObject({ code: 'user_not_usable' });
    const after = await node().listProcesses({ ...lifeOf(sandbox), sessionId: null, after: null, limit: 100 });
    expect(after.items).toHaveLength(before);
  });

  test('a name belongs to one live process at a time, and leads to the newest', async () => {
    const first = await start('sleep 600', { name: 'web' });
    await expect(start('true', { name: 'web' })).rejects.toMatchObject({ code: 'process_exists' });
    await kill(first);
    await wait(first);
    const second = await start('true', { name: 'web' });
    expect((await node().getProcess({ ...lifeOf(sandbox), process: 'web' })).processId).toBe(second.processId);
    const unknown = { ...lifeOf(sandbox), process: 'nobody' };
    await expect(node().getProcess(unknown)).rejects.toMatchObject({ code: 'process_not_found' });
  });

  test('output goes on behind any cursor without gap or duplicate, though the node dies in between', async () => {
    const process = await start('for i in $(seq 200); do echo "out $i"; echo "err $i" >&2; done');
    await wait(process);
    const all = await itemsOf(process);
    const numbers = (word: string) => Array.from({ length: 200 }, (_, at) => `${word} ${at + 1}\n`).join('');
    expect([textOf(all), textOf(all, 'stderr')]).toEqual([numbers('out'), numbers('err')]);
    expect(all.slice(-2).map(({ kind }) => kind)).toEqual(['exited', 'ended']);
    await harness.restart();
    for (const at of [0, Math.floor(all.length / 2), all.length - 1]) {
      expect(await itemsOf(process, { cursor: all[at]!.cursor })).toEqual(
        at === all.length - 1 ? [all[at]] : all.slice(at + 1),
      );
    }
    const end = all.at(-1)!.cursor;
    for (const cursor of [end + 1, all[0]!.cursor + 1]) {
      await expect(itemsOf(process, { cursor })).rejects.toMatchObject({ code: 'invalid_request' });
    }
  });

  test('a look that is not live ends with what is there; one that is sees what comes, and leaving ends nothing', async () => {
    const process = await start('echo ready; read -r line; echo "got $line"', { stdinOpen: true });
    await expect.poll(async () => textOf(await itemsOf(process, { live: false })), patience).toBe('ready\n');
    const leaving = new AbortController();
    const items = node().followProcess({ ...named(process), cursor: 0, live: true }, leaving.signal);
    const reader = items[Symbol.asyncIterator]();
    const { value: first } = await reader.next();
    const coming = reader.next();
    leaving.abort();
    expect((await coming).done).toBe(true);
    expect((await node().getProcess(named(process))).treeEndedAtMs).toBeNull();
    await node().writeStdin({ ...changeOf(process), bytes: Buffer.from('it\n'), offset: 0, close: true });
    expect(textOf(await itemsOf(process, { cursor: first!.cursor }))).toBe('got it\n');
  });

  test('what is no longer kept is told as dropped, and the rest follows it', async () => {
    const process = await start('seq 100000', { keepBytes: 64 * 1024 });
    await wait(process);
    const [dropped, ...rest] = await itemsOf(process);
    expect(dropped).toMatchObject({ kind: 'dropped', cursor: (await node().getProcess(named(process))).output.first });
    const lines = textOf(rest).trim().split('\n');
    expect(lines.at(-1)).toBe('100000');
    expect(lines.slice(1)).toEqual(lines.slice(1).map((_, at) => String(100_000 - lines.length + 2 + at)));
  });

  test('the end of the leader and of its tree are two facts, and wait answers to each, or when the time is over', async () => {
    const process = await start('sleep 600 & exit 3');
    expect(await wait(process, 'exit')).toMatchObject({ exit: { exitCode: 3, signal: null }, treeEndedAtMs: null });
    expect(await wait(process, 'tree', 1)).toMatchObject({ treeEndedAtMs: null });
    await kill(process);
    expect(await wait(process)).toMatchObject({ exit: { exitCode: 3 }, treeEndedAtMs: expect.any(Number) });
    const late = await start('sleep 600', { timeoutMs: 1_500, graceMs: 100 });
    expect((await wait(late)).exit).toMatchObject({ timedOut: true, signal: 'SIGTERM' });
  });

  test('a signal goes to the leader or the tree, KILL follows after the grace, and an ended process hears nothing', async () => {
    const stubborn = await start('trap "" TERM; echo set; while :; do sleep 0.1; done');
    await expect.poll(async () => textOf(await itemsOf(stubborn, { live: false })), patience).toBe('set\n');
    await node().signalProcess({ ...changeOf(stubborn), signal: SIGTERM, target: 'tree', graceMs: 200 });
    expect((await wait(stubborn)).exit).toMatchObject({ signal: 'SIGKILL', killed: true, exitCode: 137 });
    const after = await node().signalProcess({ ...changeOf(stubborn), signal: SIGTERM, target: 'tree', graceMs: null });
    expect(after.exit).toMatchObject({ signal: 'SIGKILL' });
    const parent = await start('sleep 600 & echo forked; wait');
    await expect.poll(async () => textOf(await itemsOf(parent, { live: false })), patience).toBe('forked\n');
    await node().signalProcess({ ...changeOf(parent), signal: SIGTERM, target: 'leader', graceMs: null });
    expect(await wait(parent, 'exit')).toMatchObject({ exit: { signal: 'SIGTERM' }, treeEndedAtMs: null });
    await kill(parent);
  });

  test('two that end all at once count each process once', async () => {
    const order = { ...lifeOf(sandbox), leaseToken: null, signal: SIGKILL, graceMs: null };
    await node().killProcesses(order);
    const processes = await Promise.all(Array.from({ length: 5 }, () => start('sleep 600')));
    const counts = await Promise.all([node().killProcesses(order), node().killProcesses(order)]);
    expect(counts.reduce((sum, { count }) => sum + count, 0)).toBe(5);
    await Promise.all(processes.map((process) => wait(process)));
    expect(await node().killProcesses(order)).toEqual({ count: 0 });
  });

  test('input has offsets: a repeat is skipped, a gap refused, and behind its end there is none', async () => {
    const process = await start('cat', { stdinOpen: true });
    const write = (text: string, offset: number | null, close = false) =>
      node().writeStdin({ ...changeOf(process), bytes: Buffer.from(text), offset, close });
    expect(await write('one ', 0)).toEqual({ offset: 4 });
    expect(await write('one ', 0)).toEqual({ offset: 4 });
    expect(await write('one two ', 0)).toEqual({ offset: 8 });
    await expect(write('late', 99)).rejects.toMatchObject({ code: 'invalid_request' });
    await harness.restart();
    expect(await write('three', null, true)).toEqual({ offset: 13 });
    expect(textOf(await itemsOf(process))).toBe('one two three');
    await expect(write('more', null)).rejects.toMatchObject({ code: 'stdin_closed' });
    const closed = await start('cat');
    expect(textOf(await itemsOf(closed))).toBe('');
  });

  test('a list shows what lives first and the newest first, page by page', async () => {
    const own = await node().createSandbox(createOrder());
    const begin = (command: string) => start(command, lifeOf(own));
    const ended = [await begin('true'), await begin('true')];
    for (const { processId, generation } of ended) {
      const order = { sandboxId: own.mark.sandboxId, generation, process: processId as string };
      await node().waitProcess({ ...order, for: 'tree', timeoutMs: waitMs }, new AbortController().signal);
    }
    const live = [await begin('sleep 600'), await begin('sleep 600')];
    const seen: string[] = [];
    for (let after: string | null = null, pages = 0; pages < 4; pages++) {
      const page = await node().listProcesses({ ...lifeOf(own), sessionId: null, after, limit: 1 });
      seen.push(...page.items.map(({ processId }) => processId));
      after = page.next;
      if (after === null) break;
    }
    expect(seen).toEqual([...live.reverse(), ...ended.reverse()].map(({ processId }) => processId));
    await node().deleteSandbox(lifeOf(own));
  });

  test('one that runs is not removed; one that is removed is gone with its output; autoCleanup goes when it was read', async () => {
    const process = await start('echo kept; sleep 600');
    await expect(node().removeProcess(changeOf(process))).rejects.toMatchObject({ code: 'process_running' });
    await kill(process);
    await wait(process);
    await node().removeProcess(changeOf(process));
    const gone = { code: 'process_not_found' };
    await expect(node().getProcess(named(process))).rejects.toMatchObject(gone);
    await expect(itemsOf(process)).rejects.toMatchObject(gone);
    const passing = await start('echo read', { autoCleanup: true });
    expect(textOf(await itemsOf(passing))).toBe('read\n');
    await expect
      .poll(
        () =>
          node()
            .getProcess(named(passing))
            .catch(({ code }) => code),
        patience,
      )
      .toBe(gone.code);
  });

  test('while a lease is held, changes need its token and looks do not', async () => {
    const own = await node().createSandbox(createOrder());
    const process = await start('echo looked at; cat', { ...lifeOf(own), stdinOpen: true });
    const about = { ...lifeOf(own), process: process.processId as string };
    await node().applySettings({
      ...{ ...lifeOf(own), version: 2 },
      settings: { ...plainSettings, leaseToken: 7, leaseHeld: true },
    });
    const changes = (leaseToken: number | null) => [
      () => start('true', { ...lifeOf(own), leaseToken }),
      () => node().writeStdin({ ...about, leaseToken, bytes: new Uint8Array(), offset: null, close: false }),
      () => node().signalProcess({ ...about, leaseToken, signal: SIGKILL, target: 'tree', graceMs: null }),
      () => node().killProcesses({ ...lifeOf(own), leaseToken, signal: SIGKILL, graceMs: null }),
    ];
    for (const change of changes(null)) await expect(change()).rejects.toMatchObject({ code: 'lease_held' });
    for (const change of changes(6)) await expect(change()).rejects.toMatchObject({ code: 'lease_lost' });
    expect((await node().getProcess(about)).treeEndedAtMs).toBeNull();
    for (const change of changes(7)) await change();
    await node().deleteSandbox(lifeOf(own));
  });

  test('E129: the end of a life ends its processes and keeps their output; the next life has none, and refuses what names the earlier', async () => {
    const own = await node().createSandbox(createOrder());
    const process = await start('echo said; sleep 600', lifeOf(own));
    const about = { ...lifeOf(own), process: process.processId as string };
    const read = async () => {
      const items: ProcessItem[] = [];
      const order = { ...about, cursor: 0, live: false };
      for await (const item of node().followProcess(order, new AbortController().signal)) items.push(item);
      return textOf(items);
    };
    await expect.poll(read, patience).toBe('said\n');
    await node().stopSandbox({ ...lifeOf(own), graceMs: 0 });
    expect((await node().getProcess(about)).exit).toMatchObject({ sandboxEnded: true });
    expect(await read()).toBe('said\n');
    await expect(start('true', lifeOf(own))).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
    await node().startSandbox({ ...lifeOf(own), generation: 2, version: 2, settings: plainSettings });
    const stale = { code: 'stale_generation' };
    await expect(node().getProcess(about)).rejects.toMatchObject(stale);
    await expect(read()).rejects.toMatchObject(stale);
    await expect(
      node().listProcesses({ ...lifeOf(own), sessionId: null, after: null, limit: 9 }),
    ).rejects.toMatchObject(stale);
    await expect(start('true', lifeOf(own))).rejects.toMatchObject(stale);
    const next = { ...lifeOf(own), generation: 2 };
    expect((await node().listProcesses({ ...next, sessionId: null, after: null, limit: 9 })).items).toEqual([]);
    await expect(node().getProcess({ ...about, generation: 2 })).rejects.toMatchObject({ code: 'process_not_found' });
    await node().deleteSandbox(next);
  });

  test('a port is closed, open, or answers with a status', async () => {
    const signal = new AbortController().signal;
    const probe = (port: number, httpPath: string | null = null) =>
      node().probePort({ ...lifeOf(sandbox), port, family: null, httpPath, timeoutMs: 2_000 }, signal);
    expect(await probe(9)).toEqual({ open: false, status: null });
    const answer = 'HTTP/1.1 204 No Content\\r\\nConnection: close\\r\\n\\r\\n';
    const serve = `use Socket; socket(S, AF_INET, SOCK_STREAM, 0); bind(S, sockaddr_in(8123, INADDR_LOOPBACK)); listen(S, 5);
      while (accept(C, S)) { my $l = <C>; syswrite C, "${answer}" if $l; close C; }`;
    const server = await start(['perl', '-e', serve]);
    await expect.poll(() => probe(8123), patience).toEqual({ open: true, status: null });
    expect(await probe(8123, '/')).toEqual({ open: true, status: 204 });
    await kill(server);
  });
}
