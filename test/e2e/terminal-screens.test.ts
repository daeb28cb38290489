/**
 * Full-screen programs through `atoll sh`, looked at with tmux: the screen is what the same program shows when it runs here, through typing,
 * resizing and the mouse; and our own terminal is as it was when it is left.
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { patience } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { programPath } from '../support/program-path.ts';
import { requires, testWith } from '../support/requires.ts';
import { Screen, showTheSame } from '../support/tmux.ts';

const programs = ['tmux', 'vim', 'less', 'top'].map((name) => requires.program(name));
const test = testWith(requires.root, requires.cgroups, ...programs);
const limits = { timeout: 240_000 };

let platform: Platform;
let sandbox: Sandbox;
let here: string;
let atoll: string;
const size = { columns: 100, rows: 30 };
const lines = Array.from({ length: 200 }, (_, i) => `line ${i + 1} é 漢字 ${'·'.repeat(i % 40)}`);

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create({ name: 'box' });
  here = join(platform.dataDirectory, 'here');
  await mkdir(here);
  await writeFile(join(here, 'text.txt'), `${lines.join('\n')}\n`);
  await sandbox.files.write('/workspace/text.txt', `${lines.join('\n')}\n`);
  atoll = `${process.execPath} ${programPath('src/cli/main.ts')} sh box`;
});
afterAll(async () => {
  await rm(here, { recursive: true, force: true });
  await platform.close();
});

const open = () => Screen.open({ ...size, cwd: here, env: { ATOLL_DATA: join(platform.dataDirectory, 'server') } });

test(
  'vim in a sandbox shows what vim here shows: at the start, after typing, after a resize',
  async () => {
    await using inside = await open();
    await using outside = await open();
    const vim = "vim -u NONE -N -c 'set encoding=utf-8 number ruler' text.txt";
    await inside.type(`${atoll} -- ${vim}`, 'Enter');
    await outside.type(vim, 'Enter');
    const isFull = (text: string) => expect(text).toMatch(/^ {2}1 line 1 é 漢字\n/);
    await showTheSame(inside, outside, isFull);
    for (const screen of [inside, outside]) {
      await screen.type('50G');
      await screen.type('onew: ');
      await screen.send('ñ 日本 😀');
      await screen.type('Escape');
    }
    await showTheSame(inside, outside, (text) => expect(text).toContain(' 51 new: ñ 日本 😀'));
    for (const smaller of [
      { columns: 61, rows: 17 },
      { columns: 133, rows: 41 },
    ]) {
      for (const screen of [inside, outside]) await screen.resize(smaller);
      await showTheSame(inside, outside, (text) => {
        expect(text.split('\n')).toHaveLength(smaller.rows);
        expect(text).toContain('new: ñ 日本 😀');
      });
    }
    for (const screen of [inside, outside]) await screen.type(':q!', 'Enter');
    await isBack(inside);
  },
  limits,
);

test(
  'less in a sandbox shows what less here shows, page by page and found by search',
  async () => {
    await using inside = await open();
    await using outside = await open();
    await inside.type(`${atoll} -e LESS= -- less text.txt`, 'Enter');
    await outside.type('LESS= less text.txt', 'Enter');
    await showTheSame(inside, outside, (text) => expect(text).toMatch(/^line 1 é 漢字\n/));
    for (const screen of [inside, outside]) await screen.type('Space');
    await showTheSame(inside, outside, (text) => expect(text).toMatch(/^line 30 /));
    for (const screen of [inside, outside]) await screen.type('/line 120', 'Enter');
    await showTheSame(inside, outside, (text) => expect(text).toMatch(/^line 120 /));
    for (const screen of [inside, outside]) await screen.resize({ columns: 50, rows: 20 });
    await showTheSame(inside, outside, (text) => expect(text).toMatch(/^line 120 /));
    for (const screen of [inside, outside]) await screen.type('q');
    await isBack(inside);
  },
  limits,
);

test(
  'top in a sandbox fills the screen, follows its size, and its exit code comes through',
  async () => {
    await using screen = await open();
    await screen.type(`${atoll} -- top -d 1; echo code=$?`, 'Enter');
    await screen.shows((text) => {
      expect(text).toMatch(/^top - .* load average: /);
      expect(text).toMatch(/PID USER .* COMMAND/);
      expect(text).toMatch(/\btop$/m);
    });
    await screen.resize({ columns: 70, rows: 12 });
    await screen.shows((text) => {
      expect(text).toMatch(/^top - /);
      expect(Math.max(...text.split('\n').map((line) => line.length))).toBeLessThanOrEqual(70);
      expect(text.split('\n').length).toBeLessThanOrEqual(12);
    });
    await screen.type('q');
    await screen.shows((text) => expect(text).toContain('code=0'));
  },
  limits,
);

test(
  'a tmux in a sandbox draws its windows and takes its keys',
  async () => {
    await using screen = await open();
    await screen.type(`${atoll} -- tmux -u -f /dev/null new-session 'PS1=in-tmux: exec bash --norc'`, 'Enter');
    await screen.shows((text) => {
      expect(text).toMatch(/^in-tmux:/);
      expect(text.split('\n')).toHaveLength(size.rows);
      expect(text).toMatch(/\n\[0\] 0:bash\*/);
    });
    await screen.type('C-b', '%');
    await screen.shows((text) => expect(text).toContain('│'));
    await screen.type('C-b', 'o');
    await screen.type('echo $COLUMNS ñ $((6 * 7))', 'Enter');
    await screen.shows((text) => expect(text).toMatch(/^\d+ ñ 42/m));
    await screen.resize({ columns: 80, rows: 20 });
    await screen.shows((text) => {
      const rows = text.split('\n');
      expect(rows).toHaveLength(20);
      expect(rows.at(-1)).toMatch(/^\[0\] 0:bash/);
    });
    await screen.type('C-b', 'd');
    await screen.shows((text) => expect(text).toMatch(/\[detached .*\]\s+ready>$/));
    await sandbox.exec(['tmux', 'kill-server']);
  },
  limits,
);

test(
  'the mouse arrives, and who leaves with Ctrl-P Ctrl-Q gets a clean terminal, and the same screen with --id again',
  async () => {
    await using screen = await open();
    const vim = "-- vim -u NONE -N -c 'set encoding=utf-8 mouse=a ttymouse=sgr ruler' text.txt";
    await screen.type(`${atoll} --id mouse ${vim}; echo code=$?`, 'Enter');
    await screen.shows((text) => expect(text).toMatch(/^line 1 /));
    expect(await screen.flag('mouse_any_flag')).toBe('1');
    expect(await screen.flag('alternate_on')).toBe('1');
    await screen.send('\x1b[<0;6;9M\x1b[<0;6;9m');
    await screen.shows((text) => expect(text).toMatch(/9,6 +Top$/));

    await screen.type('C-p', 'C-q');
    await screen.shows((text) => expect(text).toMatch(/running[\s\S]*code=0\nready>$/));
    expect(await screen.flag('mouse_any_flag')).toBe('0');
    expect(await screen.flag('alternate_on')).toBe('0');
    await screen.type("clear; stty -a | tr ' ' '\\n' | grep -cxE 'icanon;?|echo;?|isig;?|opost;?|icrnl;?'", 'Enter');
    await screen.shows((text) => expect(text).toMatch(/^5$/m));
    expect(await sandbox.terminals.get('mouse')).toMatchObject({ running: true });

    await screen.type(`${atoll} --id mouse; echo code=$?`, 'Enter');
    await screen.shows((text) => {
      expect(text).toMatch(/^line 1 /);
      expect(text).toMatch(/9,6 +Top$/);
    });
    await screen.type(':cq', 'Enter');
    await screen.shows((text) => expect(text).toContain('code=1'));
  },
  limits,
);

test(
  'a client that is told to end leaves a clean terminal, and the shell goes on',
  async () => {
    await using screen = await open();
    await screen.type(`${atoll} --id told & echo $! > pid; fg; echo code=$?`, 'Enter');
    await screen.shows((text) => expect(text).toContain('/workspace#'));
    await screen.type('cd /tmp; VALUE=kept; echo now-$((1 + 1))', 'Enter');
    await screen.shows((text) => expect(text).toContain('now-2'));
    const pid = Number(await readFile(join(here, 'pid'), 'utf8'));
    process.kill(pid, 'SIGTERM');
    await screen.shows((text) => expect(text).toContain('code=130'));
    await screen.type('stty -a | grep -o icanon', 'Enter');
    await screen.shows((text) => expect(text).toMatch(/^icanon$/m));
    await screen.type(`${atoll} --id told`, 'Enter');
    await screen.type('clear; echo $VALUE in $PWD; exit 9', 'Enter');
    await vi.waitFor(
      async () => expect(await sandbox.terminals.get('told')).toMatchObject({ exit: { exitCode: 9 } }),
      patience,
    );
  },
  limits,
);

test('without a terminal of our own: input is typed from a pipe, and output and exit code come through', async () => {
  const answer = await platform.cliWith({ stdin: 'echo sum $((20 + 22))\nexit 5\n' }, 'sh', 'box');
  expect(answer.stdout).toContain('sum 42');
  expect(answer.code).toBe(5);
  // The end of our input is the end of the shell's.
  expect((await platform.cliWith({ stdin: 'false\n' }, 'sh', 'box')).code).toBe(1);
  expect((await platform.cli('sh', 'box', '--', 'sh', '-c', 'kill -9 $$')).code).toBe(137);
  const missing = await platform.cli('sh', 'no-such-box');
  expect([missing.code, missing.stdout]).toEqual([66, '']);
});

test('terminals are listed and removed', async () => {
  const terminal = await sandbox.terminals.open({ id: 'listed', columns: 77, rows: 22 });
  terminal.close();
  const listed = await platform.cli('terminals', 'ls', 'box');
  expect(listed.stdout).toMatch(new RegExp(`${terminal.id} +listed +\\d+ +running +77x22`));
  expect((await platform.cli('terminals', 'rm', 'box', 'listed')).stdout).toBe('listed\n');
  const after = JSON.parse((await platform.cli('--json', 'terminals', 'ls', 'box')).stdout) as {
    items: { id: string }[];
  };
  expect(after.items.map((item) => item.id)).not.toContain(terminal.id);
});

async function isBack(screen: Screen): Promise<void> {
  await screen.shows((text) => expect(text).toMatch(/ready>$/));
}
