/**
 * Builds one template: makes the layers that are not there yet, each in a sandbox on the layers before it, then the manifest and the name.
 *
 * Invariants:
 *  - A layer is named by everything it depends on, so one that is there is never made again.
 *  - A build that fails leaves no name and no manifest; its layers are held while it runs, and collected when it ends.
 */
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import { fileAction, writeFile, writeTree } from '../../execution/index.ts';
import {
  type AptPackages,
  type BuildPlan,
  debianDefaults,
  describeStep,
  type HostTemplate,
  layerNameOf,
  type PlanStep,
  type RemoteRules,
  type TemplateManifest,
  type TemplateStore,
  templateIdOf,
  unpackImage,
} from '../../layers/index.ts';
import { type NetworkPolicy, PlatformError, type TemplateDefaults } from '../../protocol/index.ts';
import { BuildSandbox, type BuildSandboxParts } from './build-sandbox.ts';
import { debianRecipeVersion, makeDebianRoot } from './debian-root.ts';
import { fileDigest, treeBytes } from './tree-measures.ts';

/** A template is no bigger than this. */
const templateLimitBytes = 32 * 1024 ** 3;
const contextDirectory = '/.atoll-context';

export interface BuilderParts extends BuildSandboxParts {
  readonly store: TemplateStore;
  readonly apt: AptPackages;
  readonly host: HostTemplate;
  /** The program atoll-init, which writes the trees of images. */
  readonly initProgram: string;
  /** Which registries may be asked besides those that everybody reaches. */
  readonly rules: RemoteRules | undefined;
}

export interface BuildRequest {
  readonly teamId: string;
  readonly name: string;
  readonly plan: BuildPlan;
  readonly from: string;
  readonly network: NetworkPolicy;
  /** The tar that `copy` steps take from, or the archive of an image. */
  readonly contextFile: string | null;
  readonly mayPull: boolean;
  readonly signal: AbortSignal;
  readonly say: (text: string) => void;
  readonly onStep: (step: {
    readonly step: number;
    readonly steps: number;
    readonly text: string;
    readonly cached: boolean;
  }) => void;
}

interface Ground {
  readonly layers: readonly string[];
  readonly defaults: TemplateDefaults;
}

export async function buildTemplate(parts: BuilderParts, request: BuildRequest): Promise<TemplateManifest> {
  const build = new Build(parts, request);
  try {
    return await build.run();
  } finally {
    build.release();
  }
}

class Build {
  readonly #parts: BuilderParts;
  readonly #request: BuildRequest;
  readonly #held: (() => void)[] = [];
  #step = 0;

  constructor(parts: BuilderParts, request: BuildRequest) {
    this.#parts = parts;
    this.#request = request;
  }

  async run(): Promise<TemplateManifest> {
    const { store, clock, paths } = this.#parts;
    const { plan, teamId, name, from } = this.#request;
    const ground = await this.#origin();
    const { steps, defaults } = plan.steps(ground.defaults);
    let layers = ground.layers;
    for (const step of steps) layers = await this.#layer(layers, step);
    const sizes = await Promise.all(layers.map((layer) => treeBytes(`${paths.layers}/${layer}`)));
    const sizeBytes = sizes.reduce((sum, size) => sum + size, 0);
    const templateId = templateIdOf({ layers, defaults });
    const manifest = {
      format: 1,
      templateId,
      layers: [...layers],
      defaults,
      from,
      sizeBytes,
      createdAtMs: clock.nowMs(),
    };
    this.#request.signal.throwIfAborted();
    await store.put({ teamId, name }, manifest as TemplateManifest);
    return manifest as TemplateManifest;
  }

  release(): void {
    for (const release of this.#held) release();
  }

  /** Making the root of packages is one too. */
  get #steps(): number {
    const { origin, stepCount } = this.#request.plan;
    return stepCount + (origin.kind === 'template' ? 0 : 1);
  }

  async #origin(): Promise<Ground> {
    const { store, apt } = this.#parts;
    const { plan, teamId, say, signal } = this.#request;
    if (plan.origin.kind === 'template') {
      const { name } = plan.origin;
      const found = await store.hold({ teamId, name });
      if (found === undefined)
        throw new PlatformError('template_not_found', `There is no template "${name}" to build on.`);
      this.#held.push(found.release);
      return { layers: found.manifest.layers, defaults: found.manifest.defaults };
    }
    if (plan.origin.kind === 'image') return await this.#image(plan.origin.reference);
    const packages = await apt.bring(plan.origin.packages, { say, signal });
    const digests = [...packages.essential, ...packages.others].map(({ sha256 }) => sha256).sort();
    const layer = layerNameOf(['debian', debianRecipeVersion, digests]);
    await this.#ensure(layer, `Debian from ${digests.length} packages`, () =>
      makeDebianRoot(packages, { ...this.#parts, parts: this.#parts, say, signal }),
    );
    return { layers: [layer], defaults: debianDefaults };
  }

  /** Unpacked every time, for what an image is called says nothing about its content; the layer is named by that. */
  async #image(reference: string | null): Promise<Ground> {
    const { paths, initProgram: program, rules } = this.#parts;
    const { signal, say, mayPull } = this.#request;
    if (reference !== null && !mayPull) {
      throw new PlatformError(
        'forbidden',
        'Pulling from a registry needs a key with the scope admin; send an archive.',
      );
    }
    const source =
      reference === null
        ? ({ kind: 'archive', path: this.#context } as const)
        : ({ kind: 'registry', reference } as const);
    const sandbox = await BuildSandbox.make(this.#parts);
    try {
      const directory = join(sandbox.directory, 'image');
      say(reference === null ? 'unpacking the image\n' : `pulling ${reference}\n`);
      const cacheDirectory = join(paths.root, 'images');
      const image = await unpackImage(source, { directory, program, cacheDirectory, rules, signal });
      await sandbox.adoptTree(directory);
      const layer = layerNameOf(['image', image.digest]);
      await this.#ensure(layer, `image ${image.digest}`, async () => sandbox);
      const { env, workdir, user } = image.config;
      return { layers: [layer], defaults: { env, workdir, user: user === '' ? 'root' : user, start: null } };
    } finally {
      await sandbox.discard();
    }
  }

  async #layer(below: readonly string[], step: PlanStep): Promise<readonly string[]> {
    const layer = layerNameOf([below, step, await this.#contentOf(step)]);
    await this.#ensure(layer, describeStep(step), () => this.#perform(below, step));
    return [layer, ...below];
  }

  /** What a step depends on beyond its words. */
  async #contentOf(step: PlanStep): Promise<string | null> {
    if (step.kind === 'run') return null;
    return await fileDigest(step.kind === 'copy' ? this.#context : step.path);
  }

  async #ensure(layer: string, text: string, make: () => Promise<BuildSandbox>): Promise<void> {
    const { store } = this.#parts;
    this.#request.signal.throwIfAborted();
    this.#held.push(store.holdLayer(layer));
    const cached = await store.hasLayer(layer);
    this.#request.onStep({ step: ++this.#step, steps: this.#steps, text, cached });
    if (cached) return;
    const sandbox = await make();
    try {
      if ((await treeBytes(sandbox.tree)) > templateLimitBytes) {
        throw new PlatformError('limit_exceeded', 'The template is bigger than 32 GiB.');
      }
      await store.addLayer(layer, sandbox.tree);
    } finally {
      await sandbox.discard();
    }
  }

  /** The sandbox has ended when this answers; its tree is the layer. */
  async #perform(layers: readonly string[], step: PlanStep): Promise<BuildSandbox> {
    const sandbox = await BuildSandbox.make(this.#parts);
    try {
      const hasNetwork = step.kind === 'run' && step.hasNetwork;
      const network = hasNetwork ? this.#request.network : ({ mode: 'none', allow: [], deny: [] } as const);
      await sandbox.start({ layers, usrLayers: [], network }, { hasOwnNames: true });
      await this.#fill(sandbox, step);
      await sandbox.end();
      this.#request.signal.throwIfAborted();
      return sandbox;
    } catch (error) {
      await sandbox.discard();
      throw error;
    }
  }

  async #fill(sandbox: BuildSandbox, step: PlanStep): Promise<void> {
    const { say, signal } = this.#request;
    switch (step.kind) {
      case 'run': {
        const { exitCode, timedOut } = await sandbox.run(step, { say, signal });
        if (exitCode === 0) return;
        const message = timedOut
          ? 'A step took more than an hour.'
          : `A step ended with ${exitCode}: ${describeStep(step).slice(0, 200)}`;
        throw new PlatformError('build_step_failed', message, { details: { exitCode } });
      }
      case 'copy':
        return await copyFromContext(sandbox, { ...step, context: this.#context, signal });
      case 'machineFile':
        await writeFile(
          sandbox.files,
          { path: step.to, how: 'replace', mode: step.mode, owner: null, parents: true, expected: { kind: 'any' } },
          createReadStream(step.path),
          signal,
        );
    }
  }

  get #context(): string {
    const { contextFile } = this.#request;
    if (contextFile !== null) return contextFile;
    throw new PlatformError('invalid_definition', 'The definition copies files, and none were sent with it.');
  }
}

/** The archive is unpacked inside, by a worker of the sandbox, and what is wanted is copied from there. */
async function copyFromContext(
  sandbox: BuildSandbox,
  step: {
    readonly from: string;
    readonly to: string;
    readonly owner: string | null;
    readonly context: string;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const { files } = sandbox;
  await writeTree(files, contextDirectory, createReadStream(step.context), step.signal);
  const parent = step.to.replace(/\/+[^/]*\/*$/, '');
  if (parent !== '') await fileAction(files, { kind: 'makeDirectory', path: parent, mode: null, parents: true });
  const from = `${contextDirectory}/${step.from}`.replace(/(\/\.)+\/*$/, '');
  await fileAction(files, { kind: 'copy', from, to: step.to, recursive: true, replace: true });
  if (step.owner !== null) {
    const command = ['chown', '-R', '-h', '--', step.owner, step.to];
    const { exitCode } = await sandbox.run(
      { command, user: 'root', workdir: '/', env: {} },
      { say: () => {}, signal: step.signal },
    );
    if (exitCode !== 0)
      throw new PlatformError('build_step_failed', `"${step.owner}" cannot own what was copied.`, {
        details: { exitCode },
      });
  }
  await fileAction(files, { kind: 'remove', path: contextDirectory, recursive: true });
}
