/** `atoll mcp` with the official client: what an agent sees and does. */
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { afterAll, beforeAll, expect } from 'vitest';
import { CheckoutRig } from '../support/checkout-cli-rig.ts';
import { Platform } from '../support/platform.ts';
import { programPath } from '../support/program-path.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('git'));
const manyCalls = { timeout: 120_000 };
const cli = programPath('src/cli/main.ts');

let platform: Platform;
let rig: CheckoutRig;
let client: Client;

beforeAll(async () => {
  platform = await Platform.start();
  rig = await CheckoutRig.open(platform);
  const cwd = await rig.repository('agent');
  client = new Client({ name: 'test', version: '1' });
  const env = {
    ...(process.env as Record<string, string>),
    ATOLL_DATA: join(platform.dataDirectory, 'server'),
    ATOLL_STATE: rig.state,
  };
  await client.connect(
    new StdioClientTransport({ command: process.execPath, args: [cli, 'mcp', '--no-sync'], cwd, env }),
  );
}, 120_000);
afterAll(async () => {
  await client.close();
  await rig.close();
  await platform.close();
});

async function call(name: string, given: Record<string, unknown> = {}) {
  const answer = await client.callTool({ name, arguments: given });
  const [content] = answer.content as unknown as [{ text: string }];
  return { isError: answer.isError === true, value: JSON.parse(content.text) };
}

test(
  'the tools are there with schemas, and each does what it says',
  async () => {
    const { tools } = await client.listTools();
    const names = ['exec', 'file_read', 'file_write', 'file_list', 'process_start', 'process_output', 'process_kill'];
    expect(tools.map(({ name }) => name)).toEqual(
      expect.arrayContaining([
        ...[...names, 'process_list', 'lease_status', 'sync_push', 'sync_pull', 'sync_status'],
        ...['checkpoint_list', 'checkpoint_create', 'checkpoint_restore', 'checkpoint_fork'],
      ]),
    );
    expect(await call('process_list')).toMatchObject({
      isError: true,
      value: { error: { code: 'checkout_without_sandbox' } },
    });
    const ran = await call('exec', { command: ['sh', '-c', 'echo out; echo err >&2; exit 3'] });
    expect(ran).toMatchObject({ isError: false, value: { exitCode: 3, stdout: 'out\n', stderr: 'err\n' } });
    await call('file_write', { path: '/workspace/note.txt', text: 'from an agent' });
    expect((await call('file_read', { path: '/workspace/note.txt' })).value).toEqual({
      text: 'from an agent',
      bytes: 13,
    });
    const { value: listed } = await call('file_list', { path: '/workspace' });
    expect(listed).toEqual([expect.objectContaining({ path: expect.stringContaining('note.txt') })]);
    const { value: started } = await call('process_start', { command: 'echo begun; sleep 600', name: 'long' });
    await expect
      .poll(async () => JSON.stringify((await call('process_output', { process: 'long' })).value), { timeout: 30_000 })
      .toContain('begun');
    expect((await call('process_list')).value).toEqual(
      expect.arrayContaining([expect.objectContaining({ id: started.id, running: true })]),
    );
    expect((await call('process_kill', { process: 'long', signal: 'KILL' })).isError).toBe(false);
    expect((await call('lease_status')).value).toEqual([]);
    expect(await call('file_read', { path: '/nowhere' })).toMatchObject({
      isError: true,
      value: { error: { code: 'file_not_found' } },
    });
  },
  manyCalls,
);

test(
  'calls at the same time take turns on one sandbox',
  async () => {
    const all = await Promise.all(
      Array.from({ length: 4 }, (_, index) =>
        call('exec', { command: `echo ${index} >> /tmp/turns; sleep 0.2; echo end >> /tmp/turns` }),
      ),
    );
    expect(all.every(({ value }) => value.exitCode === 0)).toBe(true);
    const { value } = await call('exec', { command: 'cat /tmp/turns' });
    expect(value.stdout).toMatch(/^(\d\nend\n){4}$/);
  },
  manyCalls,
);

test(
  'an agent keeps a checkpoint, goes back to it and forks; forks belong to no checkout',
  async () => {
    const write = (text: string) => call('file_write', { path: '/srv/state.txt', text });
    const read = async () => (await call('file_read', { path: '/srv/state.txt' })).value.text;
    await write('before');
    const { value: kept } = await call('checkpoint_create', { name: 'good' });
    expect(kept).toMatchObject({ name: 'good', state: 'ready' });
    await write('after');
    expect((await call('checkpoint_list')).value.items).toEqual([expect.objectContaining({ id: kept.id })]);
    const restored = await call('checkpoint_restore', { checkpoint: kept.id });
    expect(restored).toMatchObject({ isError: false, value: { state: 'running', generation: kept.generation + 1 } });
    expect(await read()).toBe('before');
    const { value: forks } = await call('checkpoint_fork', { count: 2 });
    expect(forks).toEqual(Array(2).fill({ id: expect.stringMatching(/^sbx/), error: null }));
    for (const { id } of forks as { id: string }[]) {
      const fork = await platform.client.sandboxes.connect(id);
      expect(await fork.files.readText('/srv/state.txt')).toBe('before');
      expect(Object.keys(fork.metadata).filter((key) => key.startsWith('atoll.checkout.'))).toEqual([]);
    }
    expect(await call('checkpoint_restore', { checkpoint: `chk${'a'.repeat(20)}` })).toMatchObject({
      isError: true,
      value: { error: { code: 'checkpoint_not_found' } },
    });
    expect((await call('lease_status')).value).toEqual([]);
  },
  manyCalls,
);
