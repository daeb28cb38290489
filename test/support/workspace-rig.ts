/** Workspaces under test with checkouts in which commands run: in sandboxes of a node, or in directories of this machine. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import {
  type CommitTreeOrder,
  type GitObjectId,
  type LifeOrder,
  type NodeWorkspaces,
  newId,
  type SandboxId,
  type WorkspaceCommit,
  type WorkspaceId,
} from '../../src/protocol/index.ts';
import { openLocalWorkspaces } from './fake-workspaces.ts';
import type { NodeUnderTest } from './node-harness.ts';
import { createOrder, lifeOf, run } from './node-orders.ts';
import { buildTar, type TarItem } from './tar-builder.ts';

export interface TestCheckout {
  readonly life: LifeOrder;
  readonly path: string;
  /** Runs with bash there and answers with what it says; fails when it fails. */
  shell(script: string): Promise<string>;
  /** Unpacks a tar there. */
  fill(tar: Uint8Array): Promise<void>;
}

export interface WorkspacesUnderTest {
  readonly workspaces: NodeWorkspaces;
  /** Another one each time, empty. */
  newCheckout(): Promise<TestCheckout>;
  close(): Promise<void>;
}

export const testAuthor = { name: 'Ada', email: 'ada@example.com' };
export const testAtMs = 1_700_000_000_000;

export async function openLocalRig(
  options: Parameters<typeof openLocalWorkspaces>[0] & {
    /** Whose the one checkout is. */
    readonly sandboxId?: SandboxId;
  } = {},
): Promise<WorkspacesUnderTest> {
  const local = await openLocalWorkspaces(options);
  return {
    workspaces: local.workspaces,
    newCheckout: async () => {
      const life = { sandboxId: options.sandboxId ?? newId('sandbox'), generation: 1 };
      const cwd = await local.checkout(life.sandboxId, 'work');
      const shell = async (script: string) => {
        const env = { PATH: process.env['PATH'], HOME: '/nonexistent', GIT_CONFIG_NOSYSTEM: '1', ...identity };
        return (await promisify(execFile)('bash', ['-ec', script], { cwd, env })).stdout;
      };
      const fill = async (tar: Uint8Array) => {
        const child = promisify(execFile)('tar', ['-x', '--no-same-owner'], { cwd });
        child.child.stdin?.end(tar);
        await child;
      };
      return { life, path: 'work', shell, fill };
    },
    close: () => local.close(),
  };
}

/** Its sandboxes are of the template `host`, in which the machine's git is. */
export function rigOfNode(harness: NodeUnderTest): WorkspacesUnderTest {
  let count = 0;
  let made: Promise<Awaited<ReturnType<NodeUnderTest['node']['createSandbox']>>> | undefined;
  return {
    workspaces: harness.node.workspaces,
    newCheckout: async () => {
      made ??= harness.node.createSandbox(createOrder());
      const sandbox = await made;
      const path = `/workspace/checkout-${++count}`;
      await run(harness.node, sandbox, ['mkdir', '-p', path]);
      const env = { GIT_CONFIG_NOSYSTEM: '1', ...identity };
      const shell = async (script: string) => {
        const outcome = await run(harness.node, sandbox, ['bash', '-ec', script], { cwd: path, env });
        if (outcome.exitCode !== 0) throw new Error(`exit ${outcome.exitCode}: ${outcome.stdout}${outcome.stderr}`);
        return outcome.stdout;
      };
      const fill = async (tar: Uint8Array) => {
        const order = { ...lifeOf(sandbox), user: null, leaseToken: null, path };
        await harness.node.writeTree(order, oneOf(tar));
      };
      return { life: lifeOf(sandbox), path, shell, fill };
    },
    close: () => harness.close(),
  };
}

const identity = {
  GIT_AUTHOR_NAME: 'Bo',
  GIT_AUTHOR_EMAIL: 'bo@example.com',
  GIT_COMMITTER_NAME: 'Bo',
  GIT_COMMITTER_EMAIL: 'bo@example.com',
};

export async function* oneOf(bytes: Uint8Array): AsyncGenerator<Uint8Array, void> {
  yield bytes;
}

export async function wholeOf({ bytes }: { readonly bytes: AsyncIterable<Uint8Array> }): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of bytes) parts.push(part);
  return Buffer.concat(parts);
}

/** One workspace, with what tests do all the time. Spread into an order it names the workspace, and nothing else. */
export class WorkspaceUser {
  readonly #workspaces: NodeWorkspaces;
  readonly workspaceId: WorkspaceId;

  constructor(workspaces: NodeWorkspaces, workspaceId = newId('workspace')) {
    this.#workspaces = workspaces;
    this.workspaceId = workspaceId;
  }

  static async create(workspaces: NodeWorkspaces): Promise<WorkspaceUser> {
    const user = new WorkspaceUser(workspaces);
    await workspaces.create(user);
    return user;
  }

  importArchive(items: readonly TarItem[] | Buffer): Promise<WorkspaceCommit> {
    const { workspaceId } = this;
    const order = { workspaceId, source: { kind: 'archive' } as const, author: testAuthor, message: 'import' };
    const tar = Buffer.isBuffer(items) ? items : buildTar(items as readonly TarItem[]);
    return this.#workspaces.importBytes({ ...order, atMs: testAtMs }, oneOf(tar));
  }

  importFiles(files: Readonly<Record<string, string>>): Promise<WorkspaceCommit> {
    return this.importArchive(Object.entries(files).map(([name, content]) => ({ name, content })));
  }

  importBundle(bundle: Uint8Array, ref: string | null = null): Promise<WorkspaceCommit> {
    const { workspaceId } = this;
    const order = { workspaceId, source: { kind: 'bundle', ref } as const, author: testAuthor, message: '' };
    return this.#workspaces.importBytes({ ...order, atMs: testAtMs }, oneOf(bundle));
  }

  commit(tree: GitObjectId, parents: readonly GitObjectId[], more: Partial<CommitTreeOrder> = {}) {
    const { workspaceId } = this;
    const order = { workspaceId, tree, parents, author: testAuthor, atMs: testAtMs, message: 'change', trailers: [] };
    return this.#workspaces.commitTree({ ...order, ...more });
  }

  async export(
    commit: GitObjectId,
    kind: 'bundle' | 'archive' | 'checkout',
    since: readonly GitObjectId[] = [],
  ): Promise<Buffer> {
    const { workspaceId } = this;
    return await wholeOf(await this.#workspaces.exportBytes({ workspaceId, commit, kind, since }));
  }

  /** A checkout of the commit with a baseline, as attaching makes one. */
  async attach(checkout: TestCheckout, commit: GitObjectId): Promise<void> {
    await checkout.fill(await this.export(commit, 'checkout'));
  }

  collect(checkout: TestCheckout, base: GitObjectId, baseline: string | null = null) {
    const { workspaceId } = this;
    const { life, path } = checkout;
    return this.#workspaces.collect({ workspaceId, life, path, base, baseline });
  }

  recordBaseline(checkout: TestCheckout, base: GitObjectId, baseline: string): Promise<void> {
    const { workspaceId } = this;
    const { life, path } = checkout;
    return this.#workspaces.recordBaseline({ workspaceId, life, path, base, baseline });
  }

  diff(from: GitObjectId, to: GitObjectId, limit = 100) {
    return this.#workspaces.diff({ workspaceId: this.workspaceId, from, to, limit });
  }

  merge(base: GitObjectId, ours: GitObjectId, theirs: GitObjectId) {
    return this.#workspaces.merge({ workspaceId: this.workspaceId, base, ours, theirs });
  }

  /** The text of a file of a commit. */
  async read(commit: GitObjectId, path: string): Promise<string> {
    const child = promisify(execFile)('tar', ['-xO', '--', path], { maxBuffer: 1e8 });
    child.child.stdin?.end(await this.export(commit, 'archive'));
    return (await child).stdout;
  }
}
