/** What sessions of every NodeApi do, as a node sees them: exact creates and runs, turns, aborts, leases. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  type CreateSessionOrder,
  type NodeApi,
  type NodeSandbox,
  newId,
  type SessionExecOrder,
  type SessionId,
} from '../../src/protocol/index.ts';
import type { NodeUnderTest } from '../support/node-harness.ts';
import { createOrder, plainSettings } from '../support/node-orders.ts';

export function nodeSessionsContract(open: () => Promise<NodeUnderTest>): void {
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

  function sessionOrder(overrides: Partial<CreateSessionOrder> = {}): CreateSessionOrder {
    return {
      ...{ ...life(), sessionId: newId('session'), name: null, leaseToken: null },
      ...{ cwd: null, env: {}, user: null, timeoutMs: null, shell: null },
      ...overrides,
    };
  }

  function runOrder(session: string, command: string, overrides: Partial<SessionExecOrder> = {}): SessionExecOrder {
    return {
      ...{ ...life(), session, command, runId: newId('operation'), leaseToken: null, queueTimeoutMs: null },
      ...{ cwd: null, env: {}, stdin: null, timeoutMs: null, outputLimitBytes: 1024 * 1024 },
      ...overrides,
    };
  }

  async function run(session: string, command: string, overrides: Partial<SessionExecOrder> = {}) {
    const outcome = await node.execInSession(runOrder(session, command, overrides));
    return {
      ...outcome,
      stdout: Buffer.from(outcome.stdout).toString(),
      stderr: Buffer.from(outcome.stderr).toString(),
    };
  }

  test('a create that is repeated is the same session, and starts nothing', async () => {
    const order = sessionOrder({ name: 'again' });
    const [first, second] = await Promise.all([node.createSession(order), node.createSession(order)]);
    expect(second).toEqual(first);
    expect(first).toMatchObject({ sessionId: order.sessionId, name: 'again', end: null, cwd: '/workspace', queued: 0 });
    await expect(node.createSession(sessionOrder({ name: 'again' }))).rejects.toMatchObject({ code: 'session_exists' });
    expect((await node.listSessions(life())).filter(({ name }) => name === 'again')).toHaveLength(1);
  });

  test('a command has its bytes both ways, and runs once under its id', async () => {
    const { sessionId } = await node.createSession(sessionOrder());
    const stdin = Buffer.from([0, 255, 10, 200]);
    const outcome = await node.execInSession(runOrder(sessionId, 'cat; printf e >&2; (exit 4)', { stdin }));
    expect(outcome).toMatchObject({ exitCode: 4, sessionId, sessionEnded: null });
    expect(Buffer.from(outcome.stdout)).toEqual(stdin);
    expect(Buffer.from(outcome.stderr).toString()).toBe('e');
    const runId = newId('operation');
    await run(sessionId, 'n=$((n+1))', { runId });
    await expect(run(sessionId, 'n=$((n+1))', { runId })).rejects.toMatchObject({ code: 'operation_in_doubt' });
    expect((await run(sessionId, 'echo $n')).stdout).toBe('1\n');
    expect(await node.findRun({ ...life(), runId })).toMatchObject({ kind: 'ended', exitCode: 0 });
  });

  test('an abort while it waits leaves the queue, and what is aborted while it runs ends the session', async () => {
    const { sessionId } = await node.createSession(sessionOrder());
    const running = new AbortController();
    const waiting = new AbortController();
    const first = node.execInSession(runOrder(sessionId, 'touch /tmp/begun; sleep 600'), running.signal);
    const second = node.execInSession(runOrder(sessionId, 'touch /tmp/second'), waiting.signal);
    await expect.poll(() => node.getSession({ ...life(), session: sessionId }), patience).toMatchObject({ queued: 1 });
    const left = expect(second).rejects.toMatchObject({ code: 'session_queue_timeout' });
    waiting.abort();
    await left;
    await expect.poll(() => exists('/tmp/begun'), patience).toBe(true);
    running.abort();
    expect(await first).toMatchObject({ killed: true, sessionEnded: { reason: 'killed' } });
    expect(await exists('/tmp/second')).toBe(false);
    await expect(run(sessionId, 'true')).rejects.toMatchObject({ code: 'session_terminated' });
  });

  test('a lease counts when an order comes and when its turn does', async () => {
    const own = await node.createSandbox(createOrder());
    const there = { sandboxId: own.mark.sandboxId, generation: own.generation };
    const session = (await node.createSession(sessionOrder({ ...there }))).sessionId;
    const hold = 'touch /tmp/begun; while [ ! -e /tmp/go ]; do sleep 0.02; done';
    const first = node.execInSession(runOrder(session, hold, there));
    // It runs: a lease that comes between its turn and its start would refuse it too.
    await expect.poll(() => exists('/tmp/begun', there), patience).toBe(true);
    expect(await node.getSession({ ...there, session })).toMatchObject({ current: {} });
    const late = node.execInSession(runOrder(session, 'touch /tmp/late', there));
    await expect.poll(() => node.getSession({ ...there, session }), patience).toMatchObject({ queued: 1 });
    const refused = expect(late).rejects.toMatchObject({ code: 'lease_held' });
    const settings = { ...plainSettings, leaseToken: 1, leaseHeld: true };
    await node.applySettings({ ...there, version: 2, settings });
    const leaseToken = 1;
    const file = { ...there, user: null, leaseToken };
    const write = { path: '/tmp/go', how: 'replace', mode: null, owner: null, parents: false } as const;
    await node.writeFile({ ...file, ...write, expected: { kind: 'any' } }, nothing());
    await first;
    await refused;
    expect(await node.execInSession(runOrder(session, 'test ! -e /tmp/late', { ...there, leaseToken }))).toMatchObject({
      exitCode: 0,
    });
    await expect(node.deleteSession({ ...there, session, leaseToken: null })).rejects.toMatchObject({
      code: 'lease_held',
    });
    await node.deleteSession({ ...there, session, leaseToken });
    expect(await node.listSessions(there)).toEqual([]);
  });

  test('variables are set for good; a process is launched once under its id and carries the session', async () => {
    const { sessionId } = await node.createSession(sessionOrder());
    const turn = { ...life(), session: sessionId as string, leaseToken: null, queueTimeoutMs: null };
    await node.setSessionEnv({ ...turn, runId: newId('operation'), env: { SET: 'yes', HOME: null } });
    expect((await run(sessionId, 'echo "$SET ${HOME-unset}"')).stdout).toBe('yes unset\n');
    const order = {
      ...{ ...turn, processId: newId('process'), name: null, command: 'echo ran >> /tmp/launched; sleep 600' },
      ...{ cwd: null, env: {}, stdinOpen: false, timeoutMs: null, graceMs: 0, keepBytes: 65_536 },
      ...{ autoCleanup: false, detach: false },
    };
    const [first, second] = await Promise.all([node.startSessionProcess(order), node.startSessionProcess(order)]);
    expect(second.pid).toBe(first.pid);
    expect(first).toMatchObject({ sessionId, cwd: '/workspace', exit: null });
    const list = async (id: SessionId | null) =>
      (await node.listProcesses({ ...life(), sessionId: id, after: null, limit: 10 })).items.map(
        (one) => one.processId,
      );
    expect(await list(sessionId)).toEqual([order.processId]);
    expect(await list(newId('session'))).toEqual([]);
    await expect.poll(() => run(sessionId, 'cat /tmp/launched').then(({ stdout }) => stdout), patience).toBe('ran\n');
    await node.deleteSession({ ...life(), session: sessionId, leaseToken: null });
    const over = new AbortController().signal;
    const wait = { ...life(), process: order.processId, for: 'tree', timeoutMs: 30_000 } as const;
    expect((await node.waitProcess(wait, over)).exit).toMatchObject({ signal: 'SIGKILL' });
  });

  async function exists(path: string, where = life()): Promise<boolean> {
    const action = { kind: 'stat', path, followLinks: true } as const;
    return await node.fileAction({ ...where, user: null, leaseToken: null, action }).then(
      () => true,
      () => false,
    );
  }
}

const patience = { timeout: 30_000, interval: 20 };

async function* nothing(): AsyncGenerator<Uint8Array, void> {}
