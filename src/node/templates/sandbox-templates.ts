/**
 * The templates of a node, as control and the making of sandboxes see them: `host`, which is always there, and what was built here.
 *
 * Invariant: a sandbox's template is held from the moment its name is looked up until its record is known to `inUse`.
 */
import { basename, join } from 'node:path';
import type { FaultPoints, Logger } from '../../base/index.ts';
import {
  AptPackages,
  type BuildPlan,
  baseName,
  baseRecipe,
  HostTemplate,
  parseDefinition,
  type TemplateManifest,
  TemplateStore,
  type TemplatesInUse,
  templateName,
} from '../../layers/index.ts';
import {
  type AppendContextOrder,
  type BuildItem,
  type BuildOrder,
  type BuildTemplateOrder,
  type CheckpointId,
  type CreateSandboxOrder,
  type NodeBuild,
  type NodeTemplate,
  type NodeTemplates,
  PlatformError,
  type TemplateOrder,
  type TemplateSource,
} from '../../protocol/index.ts';
import type { SandboxNodeOptions } from '../node-options.ts';
import type { NodeRecord } from '../node-record.ts';
import type { SandboxStorage } from '../sandbox-storage.ts';
import { BuildContexts } from './build-contexts.ts';
import type { BuildSandboxParts } from './build-sandbox.ts';
import { buildTemplate } from './template-builder.ts';
import { TemplateBuilds } from './template-builds.ts';

export const hostName = 'host';

export interface SandboxTemplatesOptions extends BuildSandboxParts {
  /** Records of the sandboxes that are there. */
  readonly records: () => Iterable<NodeRecord>;
  /** Whether there are some whose record cannot be read. */
  readonly hasUnreadable: () => boolean;
  readonly storage: SandboxStorage;
  readonly options: Pick<SandboxNodeOptions, 'initProgram' | 'aptDirectory' | 'nodeProgram' | 'remotes'>;
  readonly faults: FaultPoints;
  readonly log: Logger;
}

/** What a sandbox is made on. */
export interface Foundation {
  /** Names exactly this template: what was written on another one is refused on it. */
  readonly base: string;
  readonly layers: string[];
  readonly usrLayers: string[];
  readonly template?: NonNullable<NodeRecord['template']>;
  /** When the record of the sandbox is known, or will never be. */
  readonly release: () => void;
}

export class SandboxTemplates implements NodeTemplates {
  readonly #options: SandboxTemplatesOptions;
  readonly #host: HostTemplate;
  readonly #store: TemplateStore;
  readonly #builds: TemplateBuilds;
  readonly #contexts: BuildContexts;
  readonly #apt: AptPackages;

  constructor(options: SandboxTemplatesOptions) {
    const { paths, lives, faults, clock, log } = options;
    this.#options = options;
    this.#host = new HostTemplate({ directory: paths.layers });
    this.#store = new TemplateStore({
      directory: paths.layers,
      isShared: paths.sharesLayers,
      discard: (path) => lives.removeTree(path),
      faults,
    });
    this.#builds = new TemplateBuilds({ directory: join(paths.root, 'builds'), clock, log });
    this.#contexts = new BuildContexts(join(paths.root, 'contexts'));
    this.#apt = new AptPackages({
      directory: join(paths.root, 'packages'),
      configuration: options.options.aptDirectory,
      clock,
    });
  }

  /** After the sandboxes were found. */
  async open(): Promise<void> {
    await this.#store.open();
    await this.#builds.open();
    await this.#contexts.open();
    await this.collect();
  }

  close(): Promise<void> {
    return this.#builds.close();
  }

  /** What a new sandbox is made on: its template, or what its checkpoint stands on. */
  foundationFor(order: CreateSandboxOrder): Promise<Foundation> {
    if (order.fromCheckpoint !== null) return this.foundationOf(order.fromCheckpoint);
    return this.#foundation({ teamId: order.mark.teamId, name: order.spec.template });
  }

  async foundationOf(checkpointId: CheckpointId): Promise<Foundation> {
    const { templateId, template } = this.#options.storage.checkpoint(checkpointId);
    if (template === undefined) return await this.#hostFoundation();
    const layers = templateId.split('+');
    // Before anything is waited for: until now the checkpoint holds them.
    const releases = layers.map((layer) => this.#store.holdLayer(layer));
    const release = () => {
      for (const letGo of releases) letGo();
    };
    return { base: templateId, layers, usrLayers: [], template, release };
  }

  async #hostFoundation(): Promise<Foundation> {
    const { layers, usrLayers } = await this.#host.ensure();
    const names = layers.map((path) => basename(path));
    return { base: names.join('+'), layers: names, usrLayers: [...usrLayers], release: () => {} };
  }

  async #foundation(key: { readonly teamId: string; readonly name: string }): Promise<Foundation> {
    if (key.name === hostName) return await this.#hostFoundation();
    const held = await this.#store.hold(key);
    if (held === undefined) throw notFound(key.name);
    const { templateId, layers, defaults } = held.manifest;
    const template = { id: templateId, ...defaults };
    return { base: layers.join('+'), layers: [...layers], usrLayers: [], template, release: held.release };
  }

  /** Removes what nothing leads to any more. */
  async collect(): Promise<void> {
    const { storage, hasUnreadable } = this.#options;
    // What cannot be read may stand on any of them.
    if (hasUnreadable() || storage.checkpoints.unreadable.length > 0) return;
    await this.#store.collect(() => this.#inUse());
  }

  async build(order: BuildTemplateOrder): Promise<NodeBuild> {
    const { buildId, teamId, name, source } = order;
    if (!templateName.safeParse(name).success) {
      throw new PlatformError('invalid_request', `"${name}" cannot be the name of a template.`);
    }
    const plan = this.#planOf(source);
    const contextId = 'contextId' in source ? source.contextId : null;
    const contextFile = contextId === null ? null : await this.#contexts.get(contextId);
    return await this.#builds.begin({
      ...{ buildId, teamId, name },
      key: JSON.stringify([name, source]),
      work: async (log, signal) => {
        try {
          const request = {
            teamId,
            name,
            plan,
            from: originOf(source, plan),
            network: order.network,
            mayPull: order.mayPull,
            contextFile,
            signal,
          };
          const manifest = await buildTemplate(
            {
              ...this.#options,
              initProgram: this.#options.options.initProgram,
              rules: this.#options.options.remotes,
              store: this.#store,
              apt: this.#apt,
              host: this.#host,
            },
            { ...request, say: (text) => log.say(text), onStep: (step) => log.step(step) },
          );
          return manifest.templateId;
        } finally {
          if (contextId !== null) await this.#contexts.forget(contextId);
          await this.collect();
        }
      },
    });
  }

  async getBuild(order: BuildOrder): Promise<NodeBuild> {
    return (await this.#builds.get(order)).build;
  }

  async *followBuild(
    order: BuildOrder & { readonly after: number },
    signal: AbortSignal,
  ): AsyncGenerator<BuildItem, void> {
    const log = await this.#builds.get(order);
    yield* log.follow(order.after, signal);
  }

  async readBuild(order: BuildOrder & { readonly after: number }): Promise<readonly BuildItem[]> {
    const { items } = await this.#builds.get(order);
    return items.filter(({ sequence }) => sequence > order.after);
  }

  cancelBuild(order: BuildOrder): Promise<NodeBuild> {
    return this.#builds.cancel(order);
  }

  appendContext(order: AppendContextOrder): Promise<number> {
    return this.#contexts.append(order);
  }

  async list({ teamId }: { readonly teamId: string }): Promise<readonly NodeTemplate[]> {
    const found = await this.#store.list(teamId);
    return found.map(({ name, manifest }) => this.#viewOf(name, manifest));
  }

  async get(order: TemplateOrder): Promise<NodeTemplate> {
    const manifest = await this.#store.find(order);
    if (manifest === undefined) throw notFound(order.name);
    return this.#viewOf(order.name, manifest);
  }

  async remove({ teamId, name }: TemplateOrder): Promise<void> {
    if (!templateName.safeParse(name).success) return;
    await this.#store.removeName({ teamId, name });
    await this.collect();
  }

  #planOf(source: TemplateSource): BuildPlan {
    switch (source.kind) {
      case 'base':
        return baseRecipe({ nodeProgram: this.#options.options.nodeProgram ?? process.execPath });
      case 'debian':
        return parseDefinition(JSON.stringify({ from: 'debian', packages: source.packages }));
      case 'definition':
        return parseDefinition(source.text);
      case 'image':
        return imagePlan(source.reference);
      case 'imageArchive':
        return imagePlan(null);
    }
  }

  #inUse(): TemplatesInUse {
    const templates = new Set<string>();
    const layers = new Set<string>();
    for (const record of this.#options.records()) {
      if (record.template !== undefined) templates.add(record.template.id);
      for (const layer of record.layers) layers.add(layer);
    }
    for (const { template, templateId } of this.#options.storage.checkpoints.list()) {
      if (template !== undefined) templates.add(template.id);
      for (const layer of templateId.split('+')) layers.add(layer);
    }
    return { templates, layers };
  }

  #viewOf(name: string, manifest: TemplateManifest): NodeTemplate {
    const { templateId, defaults, from, sizeBytes, createdAtMs } = manifest;
    let sandboxes = 0;
    for (const record of this.#options.records()) if (record.template?.id === templateId) sandboxes++;
    return { name, templateId, ...defaults, from, sizeBytes, createdAtMs, sandboxes };
  }
}

/** An image as it is. */
function imagePlan(reference: string | null): BuildPlan {
  return { origin: { kind: 'image', reference }, stepCount: 0, steps: (defaults) => ({ steps: [], defaults }) };
}

function originOf(source: TemplateSource, plan: BuildPlan): string {
  if (source.kind === 'base') return 'the recipe of base';
  const { origin } = plan;
  if (origin.kind === 'image') return origin.reference === null ? 'an image archive' : `the image ${origin.reference}`;
  return origin.kind === 'template' ? `the template ${origin.name}` : `Debian packages: ${origin.packages.join(' ')}`;
}

function notFound(name: string): PlatformError {
  if (name !== baseName) return new PlatformError('template_not_found', `This node has no template "${name}".`);
  const command = 'atoll template build base';
  return new PlatformError('template_not_built', `The template "base" is not built yet: ${command}`, {
    details: { command },
  });
}
