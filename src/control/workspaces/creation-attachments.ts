/** Workspaces of a sandbox that is being created: in place from its first moment where the cache has them, attached right behind it otherwise. */
import {
  type BodyOf,
  isPlatformError,
  type NodeId,
  PlatformError,
  type routes,
  type SandboxId,
} from '../../protocol/index.ts';
import type { CheckpointAttachment } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import type { AttachCache } from './attach-cache.ts';
import { attachPath, checkApart } from './attach-paths.ts';
import { type Attachments, elsewhere } from './attachments.ts';
import type { WorkspaceDirectory } from './workspace-directory.ts';

type CreateBody = BodyOf<typeof routes.createSandbox>;

const defaultTemplate = 'host';
/** Of a checkpoint that cannot be begun with. */
const unusable = ['checkpoint_not_found', 'checkpoint_not_usable', 'layer_incompatible', 'layer_damaged'] as const;

interface CreationAttachmentParts {
  readonly directory: WorkspaceDirectory;
  readonly cache: AttachCache;
  readonly attachments: Attachments;
}

export class CreationAttachments {
  readonly #context: ControlContext;
  readonly #parts: CreationAttachmentParts;

  constructor(context: ControlContext, parts: CreationAttachmentParts) {
    this.#context = context;
    this.#parts = parts;
  }

  /** Runs `make` with what the sandbox is to be made from. Once it is made, whatever is not in place yet is put there. */
  async around<Made>(
    caller: Caller,
    body: CreateBody,
    make: (body: CreateBody, nodeId: NodeId | undefined) => Promise<Made>,
  ): Promise<Made> {
    if (body.workspaces.length === 0) return await make(body, undefined);
    const wanted = await this.#wanted(caller, body);
    // A checkpoint of the caller's own has files of its own: there is nothing to begin with but that.
    if (body.checkpoint !== undefined) return await make(body, wanted.nodeId);
    const spec = this.#specOf(body);
    for (let attempt = 1; attempt <= 2; attempt++) {
      const cached = await this.#parts.cache.find(caller, { ...wanted, spec });
      if (cached === undefined) break;
      try {
        return await make(this.#fromCache(body, cached.checkpointId), wanted.nodeId);
      } catch (error) {
        if (!unusable.some((code) => isPlatformError(error, code))) throw error;
        this.#context.logger.warn('a checkpoint with workspaces does not fit any more', { error });
        await this.#parts.cache.drop(cached.key);
      }
    }
    return await make(body, wanted.nodeId);
  }

  /** Of a sandbox that runs: what was asked for and is not there, from the long way or an interruption, is attached. */
  async finish(caller: Caller, sandboxId: SandboxId, body: CreateBody): Promise<void> {
    if (body.workspaces.length === 0) return;
    const known = await this.#context.store.read((tables) => tables.workspaces.attachmentsOf(sandboxId));
    for (const asked of body.workspaces) {
      const { id } = await this.#parts.directory.get(caller, asked.workspace);
      if (!known.some(({ workspaceId }) => workspaceId === id)) {
        await this.#parts.attachments.ensure(caller, sandboxId, asked);
      }
    }
  }

  /** Every refusal comes before anything is made. */
  async #wanted(caller: Caller, { workspaces }: CreateBody) {
    const { directory } = this.#parts;
    const attachments: Omit<CheckpointAttachment, 'baseline'>[] = [];
    let nodeId = this.#context.nodes.choose();
    for (const asked of workspaces) {
      const workspace = await directory.ready(caller, asked.workspace);
      const version = await directory.version(workspace, asked.version);
      const path = attachPath(asked.path, workspace.name);
      checkApart(path, attachments);
      if (attachments.some(({ workspaceId }) => workspaceId === workspace.id)) throw twice(workspace.name);
      if (attachments.length > 0 && workspace.nodeId !== nodeId) throw elsewhere(workspace, { nodeId });
      nodeId = workspace.nodeId;
      attachments.push({
        workspaceId: workspace.id,
        path,
        baseNumber: version.number,
        baseCommit: version.commit,
      });
    }
    return { nodeId, attachments };
  }

  /** Whatever a sandbox of this template may be given later: only its files are kept. */
  #specOf(body: CreateBody) {
    const { defaultLimits } = this.#context.settings;
    return { template: body.template ?? defaultTemplate, limits: defaultLimits, env: {}, noNewPrivileges: false };
  }

  /** As it would be without a checkpoint: nothing but files comes from that. */
  #fromCache(body: CreateBody, checkpoint: NonNullable<CreateBody['checkpoint']>): CreateBody {
    const { defaultLimits, defaultNetwork } = this.#context.settings;
    return {
      ...body,
      checkpoint,
      metadata: body.metadata ?? {},
      env: body.env ?? {},
      limits: { ...defaultLimits, ...body.limits },
      noNewPrivileges: body.noNewPrivileges ?? false,
      network: body.network ?? defaultNetwork,
    };
  }
}

function twice(name: string): PlatformError {
  const message = `The workspace "${name}" is asked for twice: a sandbox has it once.`;
  return new PlatformError('invalid_request', message, { details: { path: 'workspaces' } });
}
