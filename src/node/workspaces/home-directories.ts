/**
 * Where a node keeps workspaces.
 *
 *   <id>/objects.git   its repository: objects, and a ref for each hold
 *   <id>/staging/      repositories in which new objects are made; emptied when the node starts
 *   <id>/baselines/    how checkouts looked when they were made
 *   making/, trash/    what is not whole, and what is being removed; emptied when the node starts
 *   home/              an empty directory: git's HOME
 *
 * Invariant: a workspace is there exactly while its directory has its name, whole and synced.
 */
import { randomBytes } from 'node:crypto';
import { access, mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type FaultPoints, syncDirectory } from '../../base/index.ts';
import { makeRepository, requireGit, takeOverRepository } from '../../layers/index.ts';
import { isId, PlatformError, type WorkspaceId } from '../../protocol/index.ts';

const own = ['making', 'trash', 'home'] as const;

export class HomeDirectories {
  readonly #root: string;
  readonly #faults: FaultPoints;

  constructor(options: { readonly root: string; readonly faults: FaultPoints }) {
    this.#root = options.root;
    this.#faults = options.faults;
  }

  get home(): string {
    return join(this.#root, 'home');
  }

  repository(id: WorkspaceId): string {
    return join(this.#root, id, 'objects.git');
  }

  staging(id: WorkspaceId): string {
    return join(this.#root, id, 'staging');
  }

  baselines(id: WorkspaceId): string {
    return join(this.#root, id, 'baselines');
  }

  /** Removes what an earlier life of the node has left. */
  async open(): Promise<void> {
    await mkdir(this.#root, { recursive: true, mode: 0o700 });
    for (const name of own) {
      await rm(join(this.#root, name), { recursive: true, force: true });
      await mkdir(join(this.#root, name), { mode: 0o700 });
    }
    for (const id of await this.list()) {
      await rm(this.staging(id), { recursive: true, force: true });
      await mkdir(this.staging(id), { mode: 0o700 });
      await takeOverRepository(this.repository(id));
    }
  }

  async list(): Promise<WorkspaceId[]> {
    return (await readdir(this.#root)).filter((name): name is WorkspaceId => isId('workspace', name)).sort();
  }

  async require(id: WorkspaceId): Promise<void> {
    if (await this.#exists(id)) return;
    throw new PlatformError('workspace_not_found', `This node has no workspace ${id}.`);
  }

  async create(id: WorkspaceId): Promise<void> {
    if (await this.#exists(id)) return;
    await requireGit();
    const making = join(this.#root, 'making', `${id}-${randomBytes(6).toString('hex')}`);
    await mkdir(making, { mode: 0o700 });
    await makeRepository(join(making, 'objects.git'), { durable: true });
    for (const name of ['staging', 'baselines']) await mkdir(join(making, name), { mode: 0o700 });
    await syncDirectory(making);
    await this.#faults.hit('workspace-create-before-name');
    await rename(making, join(this.#root, id));
    await syncDirectory(this.#root);
    await this.#faults.hit('workspace-create-before-answer');
  }

  /** Of an unknown one: succeeds. */
  async remove(id: WorkspaceId): Promise<void> {
    if (!(await this.#exists(id))) return;
    const trash = join(this.#root, 'trash', `${id}-${randomBytes(6).toString('hex')}`);
    await rename(join(this.#root, id), trash);
    await syncDirectory(this.#root);
    await this.#faults.hit('workspace-remove-before-files');
    await rm(trash, { recursive: true, force: true });
  }

  async #exists(id: WorkspaceId): Promise<boolean> {
    return await access(this.repository(id)).then(
      () => true,
      () => false,
    );
  }
}
