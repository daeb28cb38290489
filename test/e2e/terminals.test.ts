/** Terminals through the real server over a WebSocket: one pty whoever asks, many clients, replay, ends. */
import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, vi } from 'vitest';
import { terminalKeyProtocol, terminalLimits, terminalProtocol } from '../../src/protocol/index.ts';
import type { Sandbox, Terminal } from '../../src/sdk/index.ts';
import { patience } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';
import { attachUrl, TerminalClient } from '../support/terminal-client.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
let sandbox: Sandbox;
/** A shell that says nothing by itself, so that what a test sees is what it asked for. */
const quiet = { command: ['/bin/bash', '--norc', '--noprofile', '--noediting'], env: { PS1: '$ ' } };

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create();
});
afterAll(() => platform.close());

const pathOf = (terminal: { readonly id: string }) => `${sandbox.id}/terminals/${terminal.id}`;
const attach = (terminal: { readonly id: string }, search = '') =>
  TerminalClient.attach(platform, pathOf(terminal), search);
const post = (path: string, body: unknown) =>
  fetch(`${platform.server.url}/v1/sandboxes/${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${platform.key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

/** What an SDK client reads, as text that grows. */
function reading(terminal: Terminal): { text: string } {
  const seen = { text: '' };
  terminal.onData((bytes) => {
    seen.text += Buffer.from(bytes).toString('latin1');
  });
  return seen;
}

async function sees(seen: { readonly text: string }, text: string): Promise<void> {
  await vi.waitFor(() => expect(seen.text).toContain(text), patience);
}

/** How many processes have it on their command line. */
const runningOf = async (text: string) => (await sandbox.exec(['pgrep', '-fc', text])).stdout.trim();

/** Tells a program to begin that has set up its terminal, said so, and waits for a line. */
async function begin(terminal: { readonly id: string }): Promise<void> {
  const client = await attach(terminal);
  await client.sees('ready\n');
  client.type('\n');
  client.leave();
}

describe('opening', () => {
  test('E104: whoever asks for one id at once gets one pty', async () => {
    const id = `shared-${randomUUID()}`;
    const opened = await Promise.all(Array.from({ length: 12 }, () => sandbox.terminals.open({ id, ...quiet })));
    expect(new Set(opened.map((terminal) => terminal.id)).size).toBe(1);
    expect(new Set(opened.map((terminal) => terminal.view.pid)).size).toBe(1);
    const found = (await sandbox.terminals.list()).filter((view) => view.name === id);
    expect(found).toHaveLength(1);
    for (const terminal of opened) terminal.close();
    await opened[0]!.destroy();
  });

  test('E104: it is made once (201) and found again (200), by its handle and by its id', async () => {
    const id = `found-${randomUUID()}`;
    const first = await post(`${sandbox.id}/terminals`, { id });
    expect(first.status).toBe(201);
    const view = (await first.json()) as { id: string; name: string };
    expect(view).toMatchObject({ id: expect.stringMatching(/^trm[a-z0-9]{20}$/), name: id });
    for (const handle of [id, view.id]) {
      const again = await post(`${sandbox.id}/terminals`, { id: handle });
      expect(again.status).toBe(200);
      expect(await again.json()).toMatchObject({ id: view.id });
    }
    const unknown = await post(`${sandbox.id}/terminals`, { id: `trm${'x'.repeat(20)}` });
    expect([unknown.status, await unknown.json()]).toMatchObject([404, { error: { code: 'terminal_not_found' } }]);
    await sandbox.terminals.destroy(id);
  });

  test('a handle whose program has ended opens a new one', async () => {
    const id = `again-${randomUUID()}`;
    const first = await sandbox.terminals.open({ id, command: ['true'] });
    expect(await first.exited).toMatchObject({ exitCode: 0 });
    const second = await sandbox.terminals.open({ id, ...quiet });
    expect(second.id).not.toBe(first.id);
    await second.destroy();
  });

  test('what cannot be started is refused, and leaves nothing', async () => {
    const id = `bad-${randomUUID()}`;
    const wrong = (body: object) => sandbox.terminals.open({ id, ...body });
    await expect(wrong({ command: ['/no/such'] })).rejects.toMatchObject({ code: 'process_not_startable' });
    await expect(wrong({ cwd: '/no/such' })).rejects.toMatchObject({ code: 'cwd_not_usable' });
    await expect(wrong({ user: 'nobody-there' })).rejects.toMatchObject({ code: 'user_not_usable' });
    expect((await sandbox.terminals.list()).map((view) => view.name)).not.toContain(id);
  });

  test('E116: it is no process of the list and needs no session', async () => {
    const terminal = await sandbox.terminals.open(quiet);
    const { items } = await sandbox.processes.list();
    expect(items.map((process) => process.view.pid)).not.toContain(terminal.view.pid);
    expect(await sandbox.processes.killAll()).toBe(0);
    const seen = reading(terminal);
    terminal.write('echo still $((40 + 2))\n');
    await sees(seen, 'still 42');
    await terminal.destroy();
  });

  test('E131: after calls of every kind, and a terminal that was destroyed, no shell lives', async () => {
    await using own = await platform.client.sandboxes.create();
    const terminal = await own.terminals.open();
    // The control: a shell that lives is seen.
    expect((await own.exec(['ps', '-eo', 'comm='])).stdout).toContain('bash');
    await own.exec('echo text; true');
    await (await own.processes.start('echo text')).wait({ for: 'tree' });
    await own.files.write('/workspace/a', 'text');
    expect(await own.files.readText('/workspace/a')).toBe('text');
    const watch = await own.files.watch('/workspace');
    await watch.close();
    await own.exec(['git', 'init', '-q', '/workspace']);
    await own.git.status();
    await terminal.destroy();
    const names = (await own.exec(['ps', '-eo', 'comm='])).stdout.split('\n').map((name) => name.trim());
    expect(names).toContain('ps');
    expect(names.filter((name) => /^-?(ba|da)?sh$/.test(name))).toEqual([]);
  });
});

describe('what a client does', () => {
  test('E105: what is typed is echoed, and a resize is seen by stty and by a signal', async () => {
    const terminal = await sandbox.terminals.open({ ...quiet, columns: 91, rows: 33 });
    const seen = reading(terminal);
    terminal.write("trap 'echo changed $(stty size)' WINCH\nstty size; echo é😀\n");
    await sees(seen, '33 91');
    await sees(seen, Buffer.from('é😀').toString('latin1'));
    terminal.resize({ columns: 120, rows: 40 });
    await vi.waitFor(
      async () => expect(await sandbox.terminals.get(terminal.id)).toMatchObject({ columns: 120 }),
      patience,
    );
    terminal.write('\n');
    await sees(seen, 'changed 40 120');
    await terminal.destroy();
  });

  test('E105: a size that is none is refused, over HTTP and over the socket, and changes nothing', async () => {
    const terminal = await sandbox.terminals.open({ ...quiet, columns: 80, rows: 24 });
    const client = await attach(terminal);
    for (const size of [
      { columns: 0, rows: 24 },
      { columns: 80, rows: 1.5 },
      { columns: 80, rows: 70_000 },
      { rows: 3 },
    ]) {
      const answer = await post(`${pathOf(terminal)}/resize`, size);
      expect(answer.status).toBe(400);
      client.messages.length = 0;
      client.say({ type: 'resize', ...size });
      await client.until(() => client.last('error') !== undefined);
      expect(client.last('error')!.error.code).toBe('invalid_request');
    }
    client.type('stty size\n');
    await client.sees('24 80');
    // The control: a good one is taken on the same connection.
    client.say({ type: 'resize', columns: 81, rows: 25 });
    client.type('stty size\n');
    await client.sees('25 81');
    client.leave();
    await terminal.destroy();
  });

  test('E107: clients share it: each sees what any of them types, and the size that was set last', async () => {
    const terminal = await sandbox.terminals.open(quiet);
    const clients = await Promise.all([attach(terminal), attach(terminal), attach(terminal)]);
    clients[0]!.type('A=from-the-first\n');
    clients[0]!.type('echo got $A\n');
    for (const client of clients) await client.sees('got from-the-first');
    clients[1]!.say({ type: 'resize', columns: 101, rows: 31 });
    await vi.waitFor(
      async () => expect(await sandbox.terminals.get(terminal.id)).toMatchObject({ columns: 101 }),
      patience,
    );
    clients[2]!.type('stty size\n');
    for (const client of clients) await client.sees('31 101');
    for (const client of clients) client.leave();
    await terminal.destroy();
  });

  test('keys arrive in the order in which they are typed, however fast', async () => {
    const terminal = await sandbox.terminals.open({ command: ['sh', '-c', 'stty raw -echo; echo ready; exec cat'] });
    const client = await attach(terminal);
    await client.sees('ready');
    const typed = Array.from({ length: 3_000 }, (_, i) => `${i},`);
    for (const text of typed) client.type(text);
    await client.sees(',2999,');
    expect(client.text.slice(client.text.indexOf('0,'))).toBe(typed.join(''));
    client.leave();
    await terminal.destroy();
  });

  test('E111: an interrupt ends what runs in front and not the shell; a signal to the tree ends the shell', async () => {
    const terminal = await sandbox.terminals.open(quiet);
    const client = await attach(terminal);
    // One that reads keys itself would not notice Ctrl-C: an interrupt reaches it all the same.
    client.type("stty raw; sh -c 'echo in-$((1))-front; exec sleep 1000'\n");
    await client.sees('in-1-front');
    client.say({ type: 'interrupt' });
    client.type('echo ended=$?; stty sane\n');
    await client.sees('ended=130');
    client.type('echo alive=$((6 * 7))\n');
    await client.sees('alive=42');
    expect(await sandbox.terminals.get(terminal.id)).toMatchObject({ running: true });

    client.say({ type: 'signal', signal: 'KILL', target: 'tree' });
    expect(await client.closed).toBe(1000);
    expect(client.last('exit')!.exit).toMatchObject({ exitCode: 137, signal: 'SIGKILL', killed: true });
    await terminal.destroy();
  });

  test('E111: over HTTP too, and only keys of a terminal are for what runs in front', async () => {
    const terminal = await sandbox.terminals.open(quiet);
    const seen = reading(terminal);
    terminal.write("sh -c 'echo in-front; exec sleep 1000'\n");
    await sees(seen, '\nin-front');
    expect((await post(`${pathOf(terminal)}/signal`, { signal: 'TERM' })).status).toBe(400);
    expect((await post(`${pathOf(terminal)}/signal`, {})).status).toBe(200);
    terminal.write('echo ended=$?\n');
    await sees(seen, 'ended=130');
    expect((await post(`${pathOf(terminal)}/signal`, { signal: 'HUP', target: 'tree' })).status).toBe(200);
    expect(await terminal.exited).toMatchObject({ signal: 'SIGHUP' });
    await terminal.destroy();
  });
});

describe('coming back', () => {
  test('E108: the shell and what it runs survive a client that goes away', async () => {
    const terminal = await sandbox.terminals.open(quiet);
    const first = await attach(terminal);
    first.type('STATE=kept; cd /tmp\n');
    first.type('echo set=$STATE\n');
    await first.sees('set=kept');
    first.leave();
    await first.closed;
    const second = await attach(terminal);
    second.type('echo $STATE in $PWD\n');
    await second.sees('kept in /tmp');
    second.leave();
    await terminal.destroy();
  });

  test('E106: a client without a cursor is shown what was; one with a cursor gets only what came after it, once', async () => {
    const go = `/tmp/${randomUUID()}`;
    const command = [
      'sh',
      '-c',
      `stty -echo -opost; seq 1 5000; while [ ! -e ${go} ]; do sleep 0.05; done; seq 5001 10000; read x`,
    ];
    const terminal = await sandbox.terminals.open({ command });
    const first = await attach(terminal);
    await first.sees('\n5000\n');
    const { cursor } = terminal;
    const bytes = first.bytes;
    first.leave();
    // Where it began and how much came: a client knows its place without being told at every byte.
    const began = first.last('cursor')?.cursor ?? first.last('attached')!.cursor;
    const since = first.last('cursor') === undefined ? bytes : bytes - Number(began.split('.').at(-1));
    const place = `${began.slice(0, began.lastIndexOf('.'))}.${Number(began.split('.').at(-1)) + since}`;
    await sandbox.exec(['touch', go]);
    const second = await attach(terminal, `?cursor=${place}`);
    await second.sees('\n10000\n');
    expect(second.text).toBe(Array.from({ length: 5_000 }, (_, i) => `${i + 5_001}\n`).join(''));
    const third = await attach(terminal);
    await third.sees('\n10000\n');
    expect(third.text).toBe(Array.from({ length: 10_000 }, (_, i) => `${i + 1}\n`).join(''));
    expect(cursor).toContain(terminal.id);
    for (const client of [second, third]) client.leave();
    await terminal.destroy();
  });

  test('E106: the SDK comes back by itself at every cut, without gap or duplicate', async () => {
    const terminal = await sandbox.terminals.open({
      command: ['sh', '-c', 'stty -echo -opost; echo ready; read x; seq 1 200000; read x'],
    });
    await begin(terminal);
    let text = '';
    let cuts = 0;
    const cutAt = [10_000, 90_000, 200_000, 300_000];
    for (let client = terminal; ; ) {
      for await (const bytes of client) {
        text += Buffer.from(bytes).toString();
        if (text.endsWith('\n200000\n')) break;
        if (cuts < cutAt.length && text.length > cutAt[cuts]!) break;
      }
      if (text.endsWith('\n200000\n')) break;
      cuts++;
      client.close();
      client = await sandbox.terminals.attach(terminal.id, { cursor: client.cursor! });
    }
    expect(cuts).toBe(cutAt.length);
    expect(text).toBe(`ready\n${Array.from({ length: 200_000 }, (_, i) => `${i + 1}\n`).join('')}`);
    await terminal.destroy();
  });

  test('E106: a reader that takes its time lets go of its connection, and has every byte once', async () => {
    const done = `/root/${randomUUID()}`;
    const command = ['sh', '-c', `stty -echo -opost; echo ready; read x; seq 1 900000; touch ${done}; read x`];
    const terminal = await sandbox.terminals.open({ command });
    await begin(terminal);
    await vi.waitFor(async () => expect((await sandbox.exec(['test', '-e', done])).exitCode).toBe(0), patience);
    const all = Buffer.from(`ready\n${Array.from({ length: 900_000 }, (_, i) => `${i + 1}\n`).join('')}`);
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    for await (const piece of terminal) {
      pieces.push(piece);
      bytes += piece.byteLength;
      if (bytes >= all.byteLength) break;
    }
    expect(Buffer.concat(pieces).equals(all)).toBe(true);
    terminal.close();
    await terminal.destroy();
  });

  test('E106: what is shown of long output begins outside of any sequence, at a place one can come back to', async () => {
    const line = "printf '\\033[38;5;%dmcolour %d \\303\\251\\033[0m\\r\\n' $((i % 256)) $i";
    const command = [
      'bash',
      '-c',
      `stty -echo -opost; for ((i = 0; i < 30000; i++)); do ${line}; done; echo end; read x`,
    ];
    const terminal = await sandbox.terminals.open({ command });
    const first = await attach(terminal);
    await first.sees('end\n');
    for (const replayBytes of [1_000, 5_001, 40_003]) {
      const client = await attach(terminal, `?replayBytes=${replayBytes}`);
      await client.sees('end\n');
      expect(client.text).toMatch(/^(\x1b\[38;5;\d+mcolour|\x1b\[0m\r\n|\n|\x1b\[38)/);
      expect(client.bytes).toBeLessThan(replayBytes);
      expect(client.bytes).toBeGreaterThan(replayBytes / 4);
      const again = await attach(terminal, `?cursor=${client.last('attached')!.cursor}`);
      await again.sees('end\n');
      expect(again.text).toBe(client.text);
      client.leave();
      again.leave();
    }
    first.leave();
    await terminal.destroy();
  });

  test('a cursor of another terminal, or of no place, is refused with 1008', async () => {
    const [one, other] = [await sandbox.terminals.open(quiet), await sandbox.terminals.open(quiet)];
    for (const cursor of [other.cursor, 'nonsense', `${one.id}.999999999.0`, `${one.id}.3.0`]) {
      const client = new TerminalClient(attachUrl(platform, pathOf(one), `?cursor=${cursor}`), { key: platform.key });
      expect(await client.closed).toBe(1008);
      expect(client.last('error')!.error.code).toBe('invalid_request');
    }
    await one.destroy();
    await other.destroy();
  });
});

describe('the end', () => {
  test('E109: every client hears the exit code and is closed with 1000; so is one that comes later', async () => {
    const terminal = await sandbox.terminals.open(quiet);
    const clients = await Promise.all([attach(terminal), attach(terminal), attach(terminal)]);
    clients[1]!.type('echo bye; exit 42\n');
    for (const client of clients) {
      expect(await client.closed).toBe(1000);
      expect(client.text).toContain('bye\r\nexit');
      expect(client.messages.at(-1)).toMatchObject({ type: 'exit', exit: { exitCode: 42, signal: null } });
    }
    expect(await terminal.exited).toMatchObject({ exitCode: 42 });
    expect(() => terminal.write('x')).toThrow(expect.objectContaining({ code: 'stdin_closed' }));
    const late = await attach(terminal);
    expect(await late.closed).toBe(1000);
    expect(late.last('exit')!.exit.exitCode).toBe(42);
    await terminal.destroy();
  });

  test('E110: destroy ends what runs in front and behind, whatever it ignores, within the grace, and closes clients', async () => {
    const mark = `mark${randomUUID().slice(0, 8)}`;
    const terminal = await sandbox.terminals.open(quiet);
    const client = await attach(terminal);
    const stubborn = `bash -c 'trap "" HUP TERM INT; exec -a ${mark} sleep 1000'`;
    client.type(
      `exec -a x true || (exec -a ${mark} sleep 1000) & ${stubborn} & setsid ${stubborn} & nohup ${stubborn} >/dev/null & ${stubborn}\n`,
    );
    await vi.waitFor(async () => expect(Number(await runningOf(mark))).toBeGreaterThanOrEqual(4), patience);
    await terminal.destroy({ graceMs: 300 });
    expect(await runningOf(mark)).toBe('0');
    expect(await client.closed).toBe(1000);
    expect(client.last('exit')!.exit.signal).toMatch(/^SIG(HUP|KILL)$/);
    await expect(sandbox.terminals.get(terminal.id)).rejects.toMatchObject({ code: 'terminal_not_found' });
    await terminal.destroy(); // Again: nothing is there, which is what was asked for.
  });

  test('a program that takes TERM in time ends in its own way', async () => {
    const told = `/root/${randomUUID()}`;
    const script = `trap 'echo told > ${told}; exit 0' TERM; trap '' HUP; echo ready; while :; do sleep 0.05; done`;
    const terminal = await sandbox.terminals.open({ command: ['bash', '-c', script] });
    await sees(reading(terminal), 'ready');
    await terminal.destroy({ graceMs: 20_000 });
    expect((await sandbox.exec(['cat', told])).stdout).toBe('told\n');
  });

  test('a sandbox that is stopped or deleted ends its terminals, and their clients hear it', async () => {
    for (const end of ['stop', 'delete'] as const) {
      const own = await platform.client.sandboxes.create();
      const terminal = await own.terminals.open(quiet);
      const client = await TerminalClient.attach(platform, `${own.id}/terminals/${terminal.id}`);
      await own[end]();
      expect(await client.closed).toBe(1000);
      expect(client.last('exit')!.exit.killed).toBe(true);
      if (end === 'stop') await own.delete();
    }
  });
});

describe('slow and wrong clients', () => {
  test(
    'E113: a client that does not read stalls neither the program nor another client, and is told what it lost',
    async () => {
      const megabytes = 3 * Math.ceil(terminalLimits.keepBytes / 1024 ** 2);
      const done = `/root/${randomUUID()}`;
      const script = `stty -echo -opost; echo ready; read x; head -c ${megabytes}M /dev/zero | tr '\\0' 'x' | fold -w 99; touch ${done}; echo all-written; read x`;
      const terminal = await sandbox.terminals.open({ command: ['bash', '-c', script] });
      const slow = await attach(terminal);
      const quick = await attach(terminal);
      await Promise.all([slow.sees('ready'), quick.sees('ready')]);
      slow.socket.pause();
      slow.keepNothing();
      quick.type('\n');
      await quick.sees('all-written');
      expect((await sandbox.exec(['test', '-e', done])).exitCode).toBe(0);
      expect(slow.bytes).toBeLessThan(1_000);
      slow.socket.resume();
      await slow.until(() => slow.last('dropped') !== undefined);
      // From there on it is a client as any other.
      quick.type('\n');
      expect(await slow.closed).toBe(1000);
      expect(slow.last('exit')!.exit.exitCode).toBe(0);
      const lost = slow.messages.reduce((sum, message) => sum + (message.type === 'dropped' ? message.bytes : 0), 0);
      expect(lost).toBeGreaterThan(1024 ** 2);
      await terminal.destroy();
    },
    { timeout: 120_000 },
  );

  test('E114: an unknown terminal or sandbox is an error and 1008', async () => {
    for (const path of [
      `${sandbox.id}/terminals/no-such`,
      `${sandbox.id}/terminals/trm${'x'.repeat(20)}`,
      `sbx${'x'.repeat(20)}/terminals/a`,
    ]) {
      const client = new TerminalClient(attachUrl(platform, path), { key: platform.key });
      expect(await client.closed).toBe(1008);
      expect(client.messages).toMatchObject([
        { type: 'error', error: { code: expect.stringMatching(/^(terminal|sandbox)_not_found$/) } },
      ]);
    }
  });

  test('E114: what is no JSON, or none that is known, is an error, and the connection stays', async () => {
    const terminal = await sandbox.terminals.open(quiet);
    const client = await attach(terminal);
    const wrong = [
      '{',
      '[]',
      'null',
      '"resize"',
      '{"type":"dance"}',
      '{"type":"resize"}',
      '{"type":"interrupt","more":1}',
      '{"type":"signal","signal":"NOPE","target":"tree"}',
    ];
    for (const text of wrong) {
      client.messages.length = 0;
      client.say(text);
      await client.until(() => client.last('error') !== undefined);
      expect(client.last('error')!.error.code).toBe('invalid_request');
    }
    client.type('echo stays $((1 + 1))\n');
    await client.sees('stays 2');
    client.say({ type: 'ping' });
    await client.until(() => client.last('pong') !== undefined);
    client.leave();
    await terminal.destroy();
  });

  test('a message that is too long closes that client with 1009, and no other', async () => {
    const terminal = await sandbox.terminals.open(quiet);
    const [client, other] = [await attach(terminal), await attach(terminal)];
    client.socket.send(Buffer.alloc(terminalLimits.messageBytes + 1, 'x'));
    expect(await client.closed).toBe(1009);
    other.type('echo still $((1 + 1))\n');
    await other.sees('still 2');
    other.leave();
    await terminal.destroy();
  });

  test('E115: a request that asks for no upgrade is answered 426', async () => {
    const terminal = await sandbox.terminals.open(quiet);
    const answer = await fetch(attachUrl(platform, pathOf(terminal)), {
      headers: { authorization: `Bearer ${platform.key}` },
    });
    expect(answer.status).toBe(426);
    expect(await answer.json()).toMatchObject({ error: { code: 'upgrade_required' } });
    // Another protocol than ours is an offer, and the answer is the same.
    expect(await statusOf(attachUrl(platform, pathOf(terminal)), { Connection: 'Upgrade', Upgrade: 'h2c' })).toBe(426);
    await terminal.destroy();
  });

  test('a WebSocket at a path that has none is answered 404', async () => {
    const wanted = {
      Connection: 'Upgrade',
      Upgrade: 'websocket',
      'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==',
    };
    expect(await statusOf(`${platform.server.url}/v1/sandboxes/${sandbox.id}`, wanted)).toBe(404);
    const attached = attachUrl(platform, `${sandbox.id}/terminals/a`);
    expect(await statusOf(attached, { ...wanted, Authorization: '' })).toBe(401);
    expect(await statusOf(attached, wanted)).toBe(101);
  });

  test('a token of the sandbox opens its terminals through the subprotocol, and no others; the key is in no answer', async () => {
    const terminal = await sandbox.terminals.open(quiet);
    const token = await platform.client.sandboxes.createToken(sandbox.id, { expiresInMs: 60_000 });
    const protocols = [terminalProtocol, `${terminalKeyProtocol}${token.key}`];
    const client = new TerminalClient(attachUrl(platform, pathOf(terminal)), { protocols });
    await client.until(() => client.last('attached') !== undefined);
    client.type('echo token $((1 + 1))\n');
    await client.sees('token 2');
    expect(client.socket.protocol).toBe(terminalProtocol);
    client.leave();
    const other = await platform.client.sandboxes.create();
    const refused = new TerminalClient(attachUrl(platform, `${other.id}/terminals/a`), { protocols });
    expect(await refused.closed).toBe(1006);
    await other.delete();
    await terminal.destroy();
  });

  test('while somebody else holds the lease, a client sees and does not type', async () => {
    const own = await platform.client.sandboxes.create();
    const terminal = await own.terminals.open(quiet);
    const seen = reading(terminal);
    const refused = new Promise<string>((resolve) => terminal.onRefusal((error) => resolve(error.code)));
    await own.lease({ holder: 'test' }, async (held) => {
      terminal.write('echo refused\n');
      expect(await refused).toBe('lease_held');
      const mine = await held.terminals.attach(terminal.id);
      mine.write('echo held $((1 + 1))\n');
      await sees(seen, 'held 2');
      mine.close();
    });
    expect(seen.text).not.toContain('refused');
    await own.delete();
  });
});

/** Of a request with these headers, with the good key unless they say otherwise. */
function statusOf(url: string, headers: Readonly<Record<string, string>>): Promise<number> {
  return new Promise((resolve, reject) => {
    const asking = request(url, { headers: { Authorization: `Bearer ${platform.key}`, ...headers } });
    asking.on('response', (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    asking.on('upgrade', (response, socket) => {
      socket.destroy();
      resolve(response.statusCode ?? 0);
    });
    asking.on('error', reject);
    asking.end();
  });
}
