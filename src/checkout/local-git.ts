/**
 * The user's own git, asked and never told: nothing here writes to a repository. Variables that point git elsewhere, as hooks of git set them, are
 * left out, and no hook or monitor of the repository runs.
 */
import { execFile } from 'node:child_process';

export interface GitAnswer {
  /** 0: it did. */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export type Environment = Readonly<Record<string, string | undefined>>;

const outputMaxBytes = 64 * 1024 * 1024;
const withoutPrograms = ['-c', 'core.hooksPath=/dev/null', '-c', 'core.fsmonitor=false'];

export class LocalGit {
  readonly #cwd: string;
  readonly #env: Environment;

  constructor(options: { readonly cwd: string; readonly env: Environment }) {
    this.#cwd = options.cwd;
    const kept = Object.entries(options.env).filter(([name]) => !name.startsWith('GIT_'));
    this.#env = { ...Object.fromEntries(kept), LC_ALL: 'C', GIT_TERMINAL_PROMPT: '0', GIT_OPTIONAL_LOCKS: '0' };
  }

  /** What git says, a refusal too. A git that cannot be run is thrown. */
  ask(...words: readonly string[]): Promise<GitAnswer> {
    return new Promise((resolve, reject) => {
      const options = { cwd: this.#cwd, env: this.#env as NodeJS.ProcessEnv, maxBuffer: outputMaxBytes };
      execFile('git', [...withoutPrograms, ...words], options, (error, stdout, stderr) => {
        if (error !== null && typeof error.code !== 'number') reject(error);
        else resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
      });
    });
  }

  /** Its first line, or nothing when git says no. */
  async line(...words: readonly string[]): Promise<string | undefined> {
    const { code, stdout } = await this.ask(...words);
    return code === 0 ? stdout.split('\n')[0] : undefined;
  }
}
