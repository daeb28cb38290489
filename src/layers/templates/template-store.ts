/**
 * The built templates of a node: layers (immutable directories), manifests that say which layers a template consists of, and names of
 * teams that lead to manifests.
 *
 *   template-<digest>/           a layer, made elsewhere on the same file system and renamed to here when it is on disk
 *   templates/<id>.json          a manifest; its layers are there before it is
 *   template-names/<team>@<name> the id that a name leads to; its manifest is there before it is
 *
 * Invariants:
 *  - Whatever has its final name is whole. A crash leaves layers and manifests that nothing leads to, and `collect` removes them.
 *  - What a name leads to, what a sandbox uses and what is held is never collected.
 */
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { assert, type FaultPoints, KeyedMutex, noFaults, syncDirectory, writeFileDurably } from '../../base/index.ts';
import { PlatformError, type TemplateId } from '../../protocol/index.ts';
import { layerName, parseManifest, type TemplateManifest, templateName } from './manifest.ts';

export interface TemplateStoreOptions {
  /** Where layers are. */
  readonly directory: string;
  /** Others use the directory too: nothing is ever removed there. */
  readonly isShared: boolean;
  /** Removes a directory at any depth. */
  readonly discard: (path: string) => Promise<void>;
  readonly faults?: FaultPoints;
}

/** What sandboxes stand on. */
export interface TemplatesInUse {
  readonly templates: ReadonlySet<string>;
  readonly layers: ReadonlySet<string>;
}

export class TemplateStore {
  readonly #options: TemplateStoreOptions;
  readonly #faults: FaultPoints;
  /** Guards names, manifests and what is held: whoever resolves a name holds the template before a collection looks. Rank 3. */
  readonly #lock = new KeyedMutex<'store'>({ name: 'template store', rank: 3 });
  readonly #held = new Map<string, number>();

  constructor(options: TemplateStoreOptions) {
    this.#options = options;
    this.#faults = options.faults ?? noFaults;
  }

  async open(): Promise<void> {
    for (const path of [this.#manifests, this.#names]) await mkdir(path, { recursive: true, mode: 0o700 });
  }

  /** The template of this name, held until `release`: between this and the record of a sandbox nothing else keeps it. */
  async hold(key: NameKey): Promise<{ readonly manifest: TemplateManifest; readonly release: () => void } | undefined> {
    return await this.#lock.run('store', async () => {
      const manifest = await this.#find(key);
      return manifest && { manifest, release: this.#keep([manifest.templateId, ...manifest.layers]) };
    });
  }

  async find(key: NameKey): Promise<TemplateManifest | undefined> {
    return await this.#lock.run('store', () => this.#find(key));
  }

  async list(teamId: string): Promise<readonly { readonly name: string; readonly manifest: TemplateManifest }[]> {
    return await this.#lock.run('store', async () => {
      const found = [];
      for (const key of await this.#listNames()) {
        const manifest = key.teamId === teamId ? await this.#find(key) : undefined;
        if (manifest !== undefined) found.push({ name: key.name, manifest });
      }
      return found.sort((a, b) => (a.name < b.name ? -1 : 1));
    });
  }

  /** Keeps a layer that may not be in any template yet from being collected. */
  holdLayer(name: string): () => void {
    assert(layerName.test(name));
    return this.#keep([name]);
  }

  layerPath(name: string): string {
    assert(layerName.test(name));
    return join(this.#options.directory, name);
  }

  async hasLayer(name: string): Promise<boolean> {
    return (await readdir(this.layerPath(name)).catch(() => undefined)) !== undefined;
  }

  /** Takes the tree as it is, which is on the same file system and which nobody writes to any more. */
  async addLayer(name: string, tree: string): Promise<void> {
    const path = this.layerPath(name);
    // One call for thousands of files; fsync of each takes minutes.
    await promisify(execFile)('sync', ['-f', tree]);
    await this.#faults.hit('template-before-layer');
    try {
      await rename(tree, path);
    } catch (error) {
      // Somebody who shares the directory was first with the same layer; ours is the caller's to discard.
      if (!(await this.hasLayer(name))) throw error;
    }
    await syncDirectory(this.#options.directory);
    await this.#faults.hit('template-after-layer');
  }

  /** The name is the commit. */
  async put(key: NameKey, manifest: TemplateManifest): Promise<void> {
    await this.#lock.run('store', async () => {
      await writeFileDurably(join(this.#manifests, `${manifest.templateId}.json`), `${JSON.stringify(manifest)}\n`);
      await this.#faults.hit('template-before-name');
      await writeFileDurably(this.#namePath(key), `${manifest.templateId}\n`);
      await this.#faults.hit('template-after-name');
    });
  }

  async removeName(key: NameKey): Promise<void> {
    await this.#lock.run('store', async () => {
      await rm(this.#namePath(key), { force: true });
      await syncDirectory(this.#names);
    });
  }

  /** Removes what no name, sandbox or holder leads to. */
  async collect(inUse: () => TemplatesInUse): Promise<void> {
    if (this.#options.isShared) return;
    await this.#lock.run('store', async () => {
      const named = new Set<string>();
      for (const key of await this.#listNames()) named.add((await this.#readName(key)) ?? '');
      const used = inUse();
      const layers = new Set(used.layers);
      const isKept = (id: string) => named.has(id) || used.templates.has(id) || this.#held.has(id);
      for (const file of await readdir(this.#manifests)) {
        const id = file.replace(/\.json$/, '');
        const manifest = isKept(id) ? await this.#readManifest(id) : undefined;
        if (manifest === undefined) await rm(join(this.#manifests, file), { force: true });
        for (const layer of manifest?.layers ?? []) layers.add(layer);
      }
      await syncDirectory(this.#manifests);
      await this.#faults.hit('template-before-collect');
      for (const name of await readdir(this.#options.directory)) {
        const isUnused = layerName.test(name) && !layers.has(name) && !this.#held.has(name);
        if (isUnused) await this.#options.discard(join(this.#options.directory, name));
      }
    });
  }

  #keep(names: readonly string[]): () => void {
    for (const name of names) this.#held.set(name, (this.#held.get(name) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      for (const name of names) {
        const left = this.#held.get(name)! - 1;
        if (left === 0) this.#held.delete(name);
        else this.#held.set(name, left);
      }
    };
  }

  async #find(key: NameKey): Promise<TemplateManifest | undefined> {
    if (!templateName.safeParse(key.name).success) return undefined;
    const id = await this.#readName(key);
    if (id === undefined) return undefined;
    const manifest = await this.#readManifest(id);
    for (const layer of manifest?.layers ?? []) {
      if (await this.hasLayer(layer)) continue;
      throw new PlatformError('layer_damaged', `The template "${key.name}" lacks a layer; build it again.`);
    }
    return manifest;
  }

  async #readName(key: NameKey): Promise<TemplateId | undefined> {
    const text = await readIfPresent(this.#namePath(key));
    const id = text?.trim();
    return id !== undefined && /^tpl[0-9a-f]{20}$/.test(id) ? (id as TemplateId) : undefined;
  }

  async #readManifest(id: string): Promise<TemplateManifest | undefined> {
    const text = await readIfPresent(join(this.#manifests, `${id}.json`));
    return text === undefined ? undefined : parseManifest(text);
  }

  async #listNames(): Promise<NameKey[]> {
    const keys = (await readdir(this.#names)).map((file) => /^([A-Za-z0-9]+)@([^@.][^@]*)$/.exec(file));
    return keys.flatMap((match) => (match ? [{ teamId: match[1]!, name: match[2]!.replace('+', ':') }] : []));
  }

  #namePath({ teamId, name }: NameKey): string {
    assert(/^[A-Za-z0-9]+$/.test(teamId) && templateName.safeParse(name).success);
    return join(this.#names, `${teamId}@${name.replace(':', '+')}`);
  }

  get #manifests(): string {
    return join(this.#options.directory, 'templates');
  }

  get #names(): string {
    return join(this.#options.directory, 'template-names');
  }
}

export interface NameKey {
  readonly teamId: string;
  readonly name: string;
}

async function readIfPresent(path: string): Promise<string | undefined> {
  return await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
}
