/** What the terminals of every NodeApi do, as a node sees them. */
import { constants } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  type FollowTerminalOrder,
  type NodeApi,
  type NodeSandbox,
  newId,
  type OpenTerminalOrder,
  type TerminalItem,
  terminalLimits,
} from '../../src/protocol/index.ts';
import type { NodeUnderTest } from '../support/node-harness.ts';
import { createOrder, run } from '../support/node-orders.ts';

const { signals } = constants;

export function nodeTerminalsContract(open: () => Promise<NodeUnderTest>): void {
  let harness: NodeUnderTest;
  let node: NodeApi;
  let sandbox: NodeSandbox;

  beforeAll(async () => {
    harness = await open();
    node = harness.node;
    sandbox = await node.createSandbox(createOrder());
  });

  afterAll(() => harness?.close());

  const life = () => ({ sandboxId: sandbox.mark.sandboxId, generation: sandbox.generation });
  const openTerminal = (changes: Partial<OpenTerminalOrder> = {}) =>
    node.terminals.open({
      ...life(),
      terminalId: newId('terminal'),
      name: null,
      leaseToken: null,
      command: ['sh', '-c', 'stty -echo -opost; echo ready; while read x; do echo "got $x"; done'],
      cwd: null,
      env: {},
      user: null,
      timeoutMs: null,
      columns: 80,
      rows: 24,
      ...changes,
    });
  const at = (terminal: string) => ({ ...life(), terminal, leaseToken: null });
  const type = (terminal: string, text: string) => node.terminals.write({ ...at(terminal), bytes: Buffer.from(text) });

  /** Reads until the output ends with this text, or the terminal has ended. */
  async function read(terminal: string, from: FollowTerminalOrder['from'], end?: string) {
    const over = new AbortController();
    const items: TerminalItem[] = [];
    let text = '';
    const order = { ...life(), terminal, from, replayBytes: 100_000 };
    for await (const item of node.terminals.follow(order, over.signal)) {
      items.push(item);
      if (item.kind === 'output') text += Buffer.from(item.bytes).toString();
      if (end !== undefined && text.endsWith(end)) break;
    }
    over.abort();
    return { items, text, place: items.at(-1)!.place };
  }

  test('a terminal that has a time is killed with everything in it when it is over', async () => {
    const { terminal } = await openTerminal({ command: ['sh', '-c', 'sleep 1000 & sleep 1000'], timeoutMs: 1_500 });
    const { items } = await read(terminal.terminalId, null);
    expect(items.at(-1)).toMatchObject({ kind: 'exited', exit: { timedOut: true, killed: false } });
  });

  test('E104: one pty for a name, whoever asks at once, and for an order that is repeated', async () => {
    const asked = await Promise.all(Array.from({ length: 8 }, () => openTerminal({ name: 'one' })));
    expect(new Set(asked.map(({ terminal }) => terminal.terminalId)).size).toBe(1);
    expect(asked.filter(({ created }) => created)).toHaveLength(1);
    const terminalId = newId('terminal');
    const first = await openTerminal({ terminalId });
    expect(first.created).toBe(true);
    expect(await openTerminal({ terminalId })).toEqual({ terminal: first.terminal, created: false });
    expect((await node.terminals.list(life())).map((terminal) => terminal.terminalId)).toContain(terminalId);
    await node.terminals.destroy({ ...at('one'), graceMs: 100 });
    await node.terminals.destroy({ ...at(terminalId), graceMs: 100 });
  });

  test('E106: what follows a place follows it without gap or duplicate, within a record too', async () => {
    const { terminal } = await openTerminal();
    const { terminalId } = terminal;
    const first = await read(terminalId, null, 'ready\n');
    expect(first.items[0]).toEqual({ kind: 'begun', place: { cursor: 0, skip: 0 } });
    await type(terminalId, 'a\nb\n');
    const second = await read(terminalId, first.place, 'got b\n');
    expect(second.text).toBe('got a\ngot b\n');
    expect((await read(terminalId, { cursor: 0, skip: 3 }, 'got b\n')).text).toBe('dy\ngot a\ngot b\n');
    for (const cursor of [1, 999_999]) {
      await expect(read(terminalId, { cursor, skip: 0 })).rejects.toMatchObject({ code: 'invalid_request' });
    }
    await node.terminals.destroy({ ...at(terminalId), graceMs: 100 });
  });

  test('E105: E111: size and signals, and the end', async () => {
    const { terminal } = await openTerminal({ command: ['bash', '--norc', '--noediting'] });
    const { terminalId } = terminal;
    expect(await node.terminals.resize({ ...at(terminalId), columns: 133, rows: 44 })).toMatchObject({ columns: 133 });
    await type(terminalId, "stty size; sh -c 'echo front; exec sleep 1000'\n");
    const { text, place } = await read(terminalId, null, '\nfront\r\n');
    expect(text).toContain('44 133');
    const interrupt = { ...at(terminalId), signal: signals.SIGINT, target: 'foreground' } as const;
    await node.terminals.signal(interrupt);
    await type(terminalId, 'echo code=$?; exit 3\n');
    const { items, text: rest } = await read(terminalId, place);
    expect(rest).toContain('code=130');
    expect(items.at(-1)).toMatchObject({ kind: 'exited', exit: { exitCode: 3, signal: null } });
    expect(await node.terminals.get({ ...life(), terminal: terminalId })).toMatchObject({ exit: { exitCode: 3 } });
    await expect(type(terminalId, 'x')).rejects.toMatchObject({ code: 'stdin_closed' });
    // Of one that has ended: succeeds and changes nothing.
    expect(await node.terminals.signal(interrupt)).toMatchObject({ exit: { exitCode: 3 } });
    await node.terminals.destroy({ ...at(terminalId), graceMs: 0 });
    await expect(node.terminals.get({ ...life(), terminal: terminalId })).rejects.toMatchObject({
      code: 'terminal_not_found',
    });
  });

  test('E110: destroy leaves nothing of what was started, and of an unknown terminal succeeds', async () => {
    const { terminal } = await openTerminal({
      command: ['bash', '-c', "trap '' TERM HUP; (setsid sleep 4321 &) ; sleep 4321"],
    });
    const { terminalId } = terminal;
    await expect
      .poll(async () => (await run(node, sandbox, ['pgrep', '-cf', 'sleep 4321'])).stdout, { timeout: 30_000 })
      .not.toBe('0\n');
    await node.terminals.destroy({ ...at(terminalId), graceMs: 100 });
    expect((await run(node, sandbox, ['pgrep', '-cf', 'sleep 4321'])).stdout).toBe('0\n');
    await node.terminals.destroy({ ...at(terminalId), graceMs: 100 });
  });

  test('a reader that leaves ends nothing', async () => {
    const { terminal } = await openTerminal();
    const over = new AbortController();
    const order = { ...life(), terminal: terminal.terminalId, from: null, replayBytes: 0 };
    const items = node.terminals.follow(order, over.signal)[Symbol.asyncIterator]();
    await items.next();
    const waiting = items.next();
    over.abort();
    await waiting;
    await items.return?.();
    await type(terminal.terminalId, 'still\n');
    expect((await read(terminal.terminalId, null, 'got still\n')).text).toContain('got still');
    await node.terminals.destroy({ ...at(terminal.terminalId), graceMs: 100 });
  });

  test('a sandbox has so many terminals and no more, also when they are opened at once', async () => {
    const own = await node.createSandbox(createOrder());
    const order = { sandboxId: own.mark.sandboxId, generation: own.generation };
    const all = await Promise.allSettled(
      Array.from({ length: terminalLimits.live + 8 }, () => openTerminal({ ...order, command: ['cat'] })),
    );
    const refused = all.filter((one) => one.status === 'rejected');
    expect(refused.map(({ reason }) => (reason as { code: string }).code)).toEqual(Array(8).fill('limit_exceeded'));
    await node.stopSandbox({ ...order, graceMs: 0 });
  }, 120_000);

  test('what is typed needs the lease; what is read does not', async () => {
    const own = await node.createSandbox(createOrder());
    sandbox = own;
    const { terminal } = await openTerminal();
    const held = { ...own.settings, leaseToken: 7, leaseHeld: true };
    await node.applySettings({ ...life(), version: own.version + 1, settings: held });
    await expect(type(terminal.terminalId, 'x\n')).rejects.toMatchObject({ code: 'lease_held' });
    const wrong = { ...at(terminal.terminalId), leaseToken: 6 };
    await expect(node.terminals.resize({ ...wrong, columns: 5, rows: 5 })).rejects.toMatchObject({
      code: 'lease_lost',
    });
    await node.terminals.write({ ...at(terminal.terminalId), leaseToken: 7, bytes: Buffer.from('mine\n') });
    expect((await read(terminal.terminalId, null, 'got mine\n')).text).not.toContain('got x');
  });
}
