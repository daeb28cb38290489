/** Orders for a node, with everything a test does not care about filled in. */
import {
  type CheckpointId,
  type CreateSandboxOrder,
  type ExecOrder,
  type ExecOutcome,
  type LifeOrder,
  type NodeApi,
  type NodeSandbox,
  newId,
  noNetwork,
  type SandboxId,
  type SandboxSettings,
  type SandboxSpec,
} from '../../src/protocol/index.ts';

export const plainSettings: SandboxSettings = {
  metadata: {},
  metadataVersion: 1,
  expiresAtMs: null,
  leaseToken: 0,
  leaseHeld: false,
  network: noNetwork,
  onExpiry: 'end',
  autoResume: false,
  keepCheckpoints: null,
  change: { by: 'usr-test', atMs: 1, operationId: null },
};

export const plainSpec: SandboxSpec = {
  template: 'host',
  limits: { memoryBytes: 512 * 1024 * 1024, cpuMillis: 2_000, processes: 256, diskBytes: null },
  env: {},
  noNewPrivileges: false,
};

export function createOrder(
  overrides: {
    readonly sandboxId?: SandboxId;
    readonly generation?: number;
    readonly version?: number;
    readonly fromCheckpoint?: CheckpointId;
    readonly spec?: Partial<SandboxSpec>;
    readonly settings?: Partial<SandboxSettings>;
  } = {},
): CreateSandboxOrder {
  const sandboxId = overrides.sandboxId ?? newId('sandbox');
  return {
    sandboxId,
    generation: overrides.generation ?? 1,
    version: overrides.version ?? 1,
    fromCheckpoint: overrides.fromCheckpoint ?? null,
    mark: { sandboxId, teamId: newId('team'), name: null, createdAtMs: 1, createdBy: 'usr-test' },
    spec: { ...plainSpec, ...overrides.spec },
    settings: { ...plainSettings, ...overrides.settings },
  };
}

export function lifeOf({ mark, generation }: NodeSandbox): LifeOrder {
  return { sandboxId: mark.sandboxId, generation };
}

export function execOrder(sandbox: NodeSandbox, overrides: Partial<ExecOrder>): ExecOrder {
  return {
    sandboxId: sandbox.mark.sandboxId,
    generation: sandbox.generation,
    runId: newId('operation'),
    leaseToken: null,
    command: 'true',
    cwd: null,
    env: {},
    user: null,
    stdin: null,
    timeoutMs: null,
    outputLimitBytes: 1024 * 1024,
    ...overrides,
  };
}

/** An outcome with its output as text. */
export interface TextOutcome extends Omit<ExecOutcome, 'stdout' | 'stderr'> {
  readonly stdout: string;
  readonly stderr: string;
}

export async function run(
  node: NodeApi,
  sandbox: NodeSandbox,
  command: ExecOrder['command'],
  overrides: Partial<ExecOrder> = {},
): Promise<TextOutcome> {
  const outcome = await node.exec(execOrder(sandbox, { command, ...overrides }));
  const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('utf8');
  return { ...outcome, stdout: text(outcome.stdout), stderr: text(outcome.stderr) };
}
