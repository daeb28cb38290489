/** A repository in which objects are made that git itself would not make, and packed as they are. */
import { execFile, execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export interface ForgedEntry {
  readonly mode: string;
  /** Bytes as latin1. */
  readonly name: string;
  readonly id: string;
}

export class ForgedRepository {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  static async open(): Promise<ForgedRepository> {
    const path = await mkdtemp(join(tmpdir(), 'atoll-forged-'));
    execFileSync('git', ['init', '-q', '--bare', '--initial-branch=main', path], { env: forgeEnvironment });
    return new ForgedRepository(path);
  }

  close(): Promise<void> {
    return rm(this.path, { recursive: true, force: true });
  }

  git(words: readonly string[], input?: string | Uint8Array): Buffer {
    return execFileSync('git', ['-C', this.path, ...words], {
      env: forgeEnvironment,
      input: input ?? '',
      maxBuffer: 1e9,
      stdio: ['pipe', 'pipe', 'pipe'],
    });
  }

  write(type: 'blob' | 'tree' | 'commit', content: string | Uint8Array): string {
    return this.git(['hash-object', '-t', type, '--literally', '-w', '--stdin'], content).toString().trim();
  }

  blob(content: string | Uint8Array): string {
    return this.write('blob', content);
  }

  tree(entries: readonly ForgedEntry[]): string {
    const parts = entries.flatMap(({ mode, name, id }) => [
      Buffer.from(`${mode} ${name}\0`, 'latin1'),
      Buffer.from(id, 'hex'),
    ]);
    return this.write('tree', Buffer.concat(parts));
  }

  /** One file in a tree. */
  treeOf(name: string, content = 'content\n', mode = '100644'): string {
    return this.tree([{ mode, name, id: this.blob(content) }]);
  }

  commit(tree: string, parents: readonly string[] = []): string {
    const head = [`tree ${tree}`, ...parents.map((parent) => `parent ${parent}`)].join('\n');
    return this.write(
      'commit',
      `${head}\nauthor A <a@x> 1700000000 +0000\ncommitter A <a@x> 1700000000 +0000\n\nforged\n`,
    );
  }

  /** Everything that is reachable, or exactly these objects. */
  pack(commit: string, only?: readonly string[]): Buffer {
    if (only !== undefined) return this.git(['pack-objects', '-q', '--stdout'], `${only.join('\n')}\n`);
    return this.git(['pack-objects', '-q', '--stdout', '--revs'], `${commit}\n`);
  }

  bundle(commit: string, more: { readonly head?: string; readonly pack?: Uint8Array } = {}): Buffer {
    const head = more.head ?? `# v2 git bundle\n${commit} refs/heads/main\n\n`;
    return Buffer.concat([Buffer.from(head, 'latin1'), more.pack ?? this.pack(commit)]);
  }

  /** As a branch of it, to be fetched. */
  async setBranch(commit: string, branch = 'main'): Promise<void> {
    await promisify(execFile)('git', ['-C', this.path, 'update-ref', `refs/heads/${branch}`, commit], {
      env: forgeEnvironment,
    });
  }
}

const forgeEnvironment = {
  PATH: process.env['PATH'],
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  HOME: '/nonexistent',
};
