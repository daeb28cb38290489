/** A screen that a test can look at: one window of a tmux of its own, with a shell in it. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, vi } from 'vitest';

const run = promisify(execFile);
/** For a machine that does ten other things. */
const patience = { timeout: 40_000, interval: 100 };

export class Screen implements AsyncDisposable {
  readonly #directory: string;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  static async open(options: {
    readonly columns: number;
    readonly rows: number;
    readonly cwd: string;
    readonly env?: Readonly<Record<string, string>>;
  }): Promise<Screen> {
    const screen = new Screen(await mkdtemp(join(tmpdir(), 'atoll-tmux-')));
    const { columns, rows, cwd, env = {} } = options;
    const size = ['-x', String(columns), '-y', String(rows)];
    const shell = [
      'env',
      '-u',
      'TMUX',
      ...Object.entries(env).map((pair) => pair.join('=')),
      'PS1=ready> ',
      'LANG=C.UTF-8',
    ];
    await screen.#tmux(
      '-u',
      '-f',
      '/dev/null',
      'new-session',
      '-d',
      ...size,
      '-c',
      cwd,
      ...shell,
      'bash',
      '--norc',
      '--noprofile',
    );
    await screen.#tmux('set-option', '-g', 'status', 'off');
    await screen.#tmux('set-option', '-g', 'window-size', 'manual');
    await screen.resize({ columns, rows });
    await screen.shows((text) => expect(text).toContain('ready>'));
    return screen;
  }

  /** As it is typed; `Enter` and the like are keys of tmux. */
  async type(...keys: readonly string[]): Promise<void> {
    await this.#tmux('send-keys', '--', ...keys);
  }

  /** Bytes that no key makes. */
  async send(text: string): Promise<void> {
    const codes = [...Buffer.from(text)].map((byte) => byte.toString(16).padStart(2, '0'));
    await this.#tmux('send-keys', '-H', ...codes);
  }

  async resize(size: { readonly columns: number; readonly rows: number }): Promise<void> {
    await this.#tmux('resize-window', '-x', String(size.columns), '-y', String(size.rows));
  }

  async text(): Promise<string> {
    return (await this.#tmux('capture-pane', '-p')).replace(/\s+$/, '');
  }

  /** What tmux knows of the window: `alternate_on`, `mouse_any_flag`. */
  async flag(name: string): Promise<string> {
    return (await this.#tmux('display-message', '-p', `#{${name}}`)).trim();
  }

  /** Until the check passes. */
  async shows(check: (text: string) => void): Promise<void> {
    await vi.waitFor(async () => check(await this.text()), patience);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tmux('kill-server').catch(() => {});
    await rm(this.#directory, { recursive: true, force: true });
  }

  async #tmux(...words: readonly string[]): Promise<string> {
    const { stdout } = await run('tmux', ['-S', join(this.#directory, 'socket'), ...words], {
      env: { ...process.env, TMUX: '' },
    });
    return stdout;
  }
}

/** Until both show the same, and the check passes on it. */
export async function showTheSame(one: Screen, other: Screen, check: (text: string) => void): Promise<void> {
  await vi.waitFor(async () => {
    const text = await one.text();
    check(text);
    expect(await other.text()).toBe(text);
  }, patience);
}
