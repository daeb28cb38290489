/** Terminals through the official E2B SDK. */
import type { Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type E2bRig, openE2b } from '../support/e2b-rig.ts';

let rig: E2bRig;
let sandbox: Sandbox;
const limitMs = 120_000;
const patience = { timeout: 30_000, interval: 50 };

beforeAll(async () => {
  rig = await openE2b();
  sandbox = rig.sandbox;
}, limitMs);
afterAll(() => rig?.close(), limitMs);

class Screen {
  text = '';
  readonly onData = (bytes: Uint8Array) => {
    this.text += Buffer.from(bytes).toString();
  };
}

const type = (pid: number, text: string) => sandbox.pty.sendInput(pid, Buffer.from(text));

test(
  'a terminal is made, typed into, resized and ended',
  async () => {
    const screen = new Screen();
    const handle = await sandbox.pty.create({
      cols: 90,
      rows: 30,
      cwd: '/tmp',
      envs: { MINE: 'yes' },
      onData: screen.onData,
    });
    await type(handle.pid, 'echo "$(pwd) $MINE $TERM $(tput cols)x$(tput lines)"\n');
    await expect.poll(() => screen.text, patience).toContain('/tmp yes xterm-256color 90x30');
    await sandbox.pty.resize(handle.pid, { cols: 101, rows: 33 });
    await type(handle.pid, 'echo "now $(tput cols)x$(tput lines)"\n');
    await expect.poll(() => screen.text, patience).toContain('now 101x33');
    expect((await sandbox.commands.list()).map(({ pid }) => pid)).toContain(handle.pid);
    await type(handle.pid, 'exit 4\n');
    expect(await handle.wait().catch((error: unknown) => error)).toMatchObject({ exitCode: 4 });
    await expect(sandbox.pty.resize(handle.pid, { cols: 80, rows: 24 })).rejects.toMatchObject({
      name: 'NotFoundError',
    });
  },
  limitMs,
);

test(
  'a second client hears what comes from then on, and killing it ends it for both',
  async () => {
    const [first, second] = [new Screen(), new Screen()];
    const handle = await sandbox.pty.create({ cols: 80, rows: 24, onData: first.onData, timeoutMs: 0 });
    await type(handle.pid, 'echo ear"ly"\n');
    await expect.poll(() => first.text, patience).toContain('early');
    const other = await sandbox.pty.connect(handle.pid, { onData: second.onData, timeoutMs: 0 });
    await type(handle.pid, 'echo la"te"\n');
    await expect.poll(() => second.text, patience).toContain('late');
    expect(second.text).not.toContain('early');
    await handle.disconnect();
    const ended = other.wait().catch((error: unknown) => error);
    expect(await sandbox.pty.kill(handle.pid)).toBe(true);
    expect(await ended).toMatchObject({ exitCode: -1 });
    expect(await sandbox.pty.kill(handle.pid)).toBe(false);
  },
  limitMs,
);

test(
  'the time of a terminal ends it',
  async () => {
    const handle = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 2_000 });
    await expect(handle.wait()).rejects.toMatchObject({ name: 'TimeoutError' });
    const pids = async () => (await sandbox.commands.list()).map(({ pid }) => pid);
    await expect.poll(pids, patience).not.toContain(handle.pid);
  },
  limitMs,
);
