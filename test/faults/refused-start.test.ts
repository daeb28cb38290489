/** A server or node that cannot start says why in one line, names the way out, and exits with a code of its own. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, expect } from 'vitest';
import { openSqliteStore } from '../../src/store/index.ts';
import { type CliAnswer, Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
/** As sysexits has it: what was asked for cannot be. */
const notConfigured = 78;

let platform: Platform;
let directory: string;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process' });
  directory = await mkdtemp(join(tmpdir(), 'atoll-refused-'));
});
afterAll(async () => {
  await platform.close();
  await rm(directory, { recursive: true, force: true });
});

let count = 0;
const fresh = () => join(directory, `data-${count++}`);

function expectRefusal(answer: CliAnswer, ...words: readonly (string | RegExp)[]): void {
  const lines = answer.stderr.trimEnd().split('\n');
  expect({ code: answer.code, stdout: answer.stdout, lines: lines.length }, answer.stderr).toEqual({
    code: notConfigured,
    stdout: '',
    lines: 1,
  });
  expect(answer.stderr).toMatch(/^atoll: /);
  for (const word of words) expect(answer.stderr).toMatch(word);
}

const quiet = ['--log-level', 'error'];

test('a port in use is named, with the option that chooses another', async () => {
  const { port } = new URL(platform.server.url);
  expectRefusal(await platform.cli('serve', '--data', fresh(), '--port', port, ...quiet), port, '--port');
  expectRefusal(await platform.cli('node', '--data', fresh(), '--port', port, ...quiet), port, '--port');
});

test('a data directory that another server or node uses is refused with its process id', async () => {
  const server = join(platform.dataDirectory, 'server');
  const pid = String(platform.server.pid);
  expectRefusal(await platform.cli('serve', '--data', server, '--port', '0', ...quiet), server, pid);
  const far = join(platform.dataDirectory, 'far');
  const nodePid = String(platform.node!.pid);
  expectRefusal(await platform.cli('node', '--data', far, '--port', '0', ...quiet), far, nodePid);
  expect((await platform.cli('ls')).code).toBe(0);
});

test('a store of a newer version is refused, and left as it is', async () => {
  const data = fresh();
  await mkdir(data);
  const path = join(data, 'atoll.db');
  await (await openSqliteStore({ path })).close();
  const database = new DatabaseSync(path);
  database.exec('PRAGMA user_version = 9999');
  database.close();
  const before = await readFile(path);
  expectRefusal(await platform.cli('serve', '--data', data, '--port', '0', ...quiet), /newer/);
  expect(await readFile(path)).toEqual(before);
});

test("a node's directory of a newer version is refused", async () => {
  const data = fresh();
  await mkdir(join(data, 'node'), { recursive: true });
  await writeFile(join(data, 'node', 'node.json'), JSON.stringify({ format: 9999, nodeId: `nod${'a'.repeat(20)}` }));
  expectRefusal(await platform.cli('node', '--data', data, '--port', '0', ...quiet), /newer/);
  expectRefusal(await platform.cli('serve', '--data', data, '--port', '0', ...quiet), /newer/);
});

test('a wrong token, an absent token file and a node that is not there are told apart', async () => {
  const wrong = join(directory, 'wrong-token');
  await writeFile(wrong, 'not the token\n');
  const serve = (url: string, ...more: string[]) =>
    platform.cli('serve', '--data', fresh(), '--port', '0', '--node-url', url, ...more, ...quiet);
  const { url } = platform.node!;
  expectRefusal(await serve(url, '--node-token-file', wrong), /token/);
  expectRefusal(await serve(url), '--node-token-file');
  expectRefusal(await serve(url, '--node-token-file', join(directory, 'absent')), 'absent');
  expectRefusal(await serve('http://127.0.0.1:1', '--node-token-file', wrong), '127.0.0.1:1', /atoll node/);
});

test('settings and fault scripts that are not understood are refused', async () => {
  const serve = (env: Record<string, string>) =>
    platform.cliWith({ env }, 'serve', '--data', fresh(), '--port', '0', ...quiet);
  expectRefusal(await serve({ ATOLL_SETTINGS: '{"transitionMs": "soon"}' }), 'ATOLL_SETTINGS', 'transitionMs');
  expectRefusal(await serve({ ATOLL_SETTINGS: '{"sooner": 1}' }), 'ATOLL_SETTINGS', 'sooner');
  expectRefusal(await serve({ ATOLL_FAULTS: 'anywhere=explode' }), 'ATOLL_FAULTS', 'anywhere=explode');
});
