/** Repositories and directories in a folder of their own, and results of plans for them, made by git as a workspace's home would. */
import { execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import {
  type ApplyPlanOptions,
  type ApplyResult,
  applyPlan,
  type PlanTarget,
  type TargetPlace,
  undoLast,
} from '../../src/checkout/apply/index.ts';
import { quickRoot } from './quick-directory.ts';

/** null removes; a symlink is written as `-> text`, an executable file begins with `#!`. */
export type Files = Readonly<Record<string, string | null>>;

export interface RigTarget {
  /** Where the workspace's repository is. */
  readonly source: string;
  readonly workspace: string;
  readonly base: string;
  readonly commit: string;
  readonly place: TargetPlace;
}

const identity = {
  GIT_AUTHOR_NAME: 'Ada',
  GIT_AUTHOR_EMAIL: 'ada@example.com',
  GIT_COMMITTER_NAME: 'Ada',
  GIT_COMMITTER_EMAIL: 'ada@example.com',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_CONFIG_NOSYSTEM: '1',
};

export function runGit(cwd: string, ...words: readonly string[]): string {
  const env = { ...process.env, ...identity };
  return execFileSync('git', words, { cwd, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();
}

export function writeFiles(root: string, files: Files): void {
  for (const [name, content] of Object.entries(files)) {
    const path = join(root, name);
    rmSync(path, { recursive: true, force: true });
    if (content === null) continue;
    mkdirSync(dirname(path), { recursive: true });
    if (content.startsWith('-> ')) symlinkSync(content.slice(3), path);
    else writeFileSync(path, content);
    if (content.startsWith('#!')) chmodSync(path, 0o755);
  }
}

/** Everything below a directory but git's own: kind, permissions and content of each path. */
export function treeOf(root: string): Record<string, string> {
  const found: Record<string, string> = {};
  const look = (name: string) => {
    for (const entry of readdirSync(join(root, name)).sort()) {
      const path = name === '' ? entry : `${name}/${entry}`;
      if (entry === '.git') continue;
      const stats = lstatSync(join(root, path));
      const perm = (stats.mode & 0o7777).toString(8);
      if (stats.isSymbolicLink()) found[path] = `-> ${readlinkSync(join(root, path))}`;
      else if (stats.isDirectory()) {
        found[path] = `${perm} directory`;
        look(path);
      } else found[path] = `${perm} ${readFileSync(join(root, path), 'latin1')}`;
    }
  };
  look('');
  return found;
}

/** A repository's working tree, index, branches and what our own refs are, to compare before and after. */
export function stateOf(root: string): unknown {
  const refs = runGit(root, 'for-each-ref', '--format=%(refname) %(objectname)', 'refs/heads');
  const staged = existsSync(join(root, '.git')) ? runGit(root, 'ls-files', '-s') : '';
  return { files: treeOf(root), refs, staged, head: runGit(root, 'symbolic-ref', 'HEAD') };
}

export function bundleOf(source: string, commit: string, since: readonly string[]): AsyncIterable<Uint8Array> {
  const words = ['bundle', 'create', '-q', '-', 'refs/heads/main', ...since.map((id) => `^${id}`)];
  if (runGit(source, 'rev-parse', 'refs/heads/main') !== commit)
    runGit(source, 'update-ref', 'refs/heads/main', commit);
  const child = spawn('git', words, {
    cwd: source,
    env: { ...process.env, ...identity },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  return child.stdout;
}

export function planTarget({ source, workspace, base, commit }: RigTarget): PlanTarget {
  return {
    workspaceId: `wsp-${workspace}`,
    workspace,
    base,
    commit,
    openBundle: (since) => bundleOf(source, commit, since),
  };
}

export class ApplyRig implements Disposable {
  readonly directory = realpathSync(mkdtempSync(join(quickRoot(), 'atoll-apply-')));
  readonly state = join(this.directory, 'state');
  #nowMs = 1_800_000_000_000;

  /** A repository of the user's with one commit. */
  repository(name: string, files: Files, message?: string): string {
    const root = join(this.directory, name);
    mkdirSync(root, { recursive: true });
    runGit(root, 'init', '-q', '-b', 'main');
    this.commit(root, files, message);
    return root;
  }

  folder(name: string, files: Files): string {
    const root = join(this.directory, name);
    mkdirSync(root, { recursive: true });
    writeFiles(root, files);
    return root;
  }

  commit(root: string, files: Files, message = 'a change'): string {
    writeFiles(root, files);
    runGit(root, 'add', '-A');
    runGit(root, 'commit', '-q', '--allow-empty', '-m', message);
    return runGit(root, 'rev-parse', 'HEAD');
  }

  /** A workspace that was imported from a repository, with the result of a plan on top. */
  result(root: string, files: Files, place: TargetPlace = { path: root }, name = root.split('/').at(-1)!): RigTarget {
    const source = join(this.directory, `workspace-${name}-${this.tick()}`);
    runGit(this.directory, 'clone', '-q', root, source);
    runGit(source, 'checkout', '-q', '-B', 'main');
    return this.next({ source, workspace: name, place, base: '', commit: runGit(source, 'rev-parse', 'HEAD') }, files);
  }

  /** A workspace of its own history. */
  foreignResult(before: Files, files: Files, place: TargetPlace, name: string): RigTarget {
    const source = this.repository(`workspace-${name}-${this.tick()}`, before, 'of a history of its own');
    return this.next({ source, workspace: name, place, base: '', commit: runGit(source, 'rev-parse', 'HEAD') }, files);
  }

  /** The result of a further plan. */
  next(target: RigTarget, files: Files): RigTarget {
    runGit(target.source, 'reset', '-q', '--hard', target.commit);
    return {
      ...target,
      base: target.commit,
      commit: this.commit(target.source, files, `result for ${target.workspace}`),
    };
  }

  tick(): number {
    // A worker counts on from what it is given.
    this.#nowMs += 1_000;
    return this.#nowMs;
  }

  get options(): ApplyPlanOptions {
    return { stateDirectory: this.state, env: process.env, nowMs: () => this.tick(), command: 'test', waitMs: 5_000 };
  }

  apply(
    targets: readonly RigTarget[],
    more: Partial<ApplyPlanOptions> & { readonly commitId?: string } = {},
  ): Promise<ApplyResult> {
    const { commitId = `cmt-${targets.map(({ commit }) => commit.slice(0, 8)).join('-')}`, ...options } = more;
    const named = targets.map((target) => ({ target: planTarget(target), place: target.place }));
    return applyPlan({ planId: 'pln1', planName: 'a plan', commitId, targets: named }, { ...this.options, ...options });
  }

  undo(more: Partial<ApplyPlanOptions> = {}): Promise<ApplyResult | undefined> {
    return undoLast({ ...this.options, ...more });
  }

  /** What an apply left lying around in a target. */
  leftovers(root: string): string[] {
    const inGit = existsSync(join(root, '.git')) ? readdirSync(join(root, '.git')) : readdirSync(root);
    return [...readdirSync(root), ...inGit].filter((name) => name.startsWith('.atoll-') || name.endsWith('.lock'));
  }

  [Symbol.dispose](): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}
