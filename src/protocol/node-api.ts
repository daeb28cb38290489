/**
 * What control asks of a node. Arguments and results are plain data (JSON, and bytes as Uint8Array), so that a direct call and
 * an HTTP call to another machine are the same to both sides.
 *
 * Rules every implementation keeps (test/contract/node.contract.ts):
 *  - An order names the life it is meant for. A smaller generation than the node has is refused with `stale_generation`.
 *  - Settings carry the record's version. The node keeps what it applied for as long as that life, applies all of it or nothing,
 *    and refuses a version that is not newer than what it has with `version_mismatch` (details: generation, version), unless
 *    it is exactly what it has, which succeeds again.
 *  - Orders for one sandbox that change it run one at a time, in the order they arrived.
 *  - `node_unavailable`, `sandbox_unavailable` promise that nothing was changed; `outcome_unknown` promises nothing.
 */
import type { CheckpointId, NodeId, SandboxId } from './ids.ts';
import type { NetworkPolicy } from './network.ts';
import type { NodeBranches } from './node-branches.ts';
import type { NodeFiles } from './node-files.ts';
import type { NodeLoad } from './node-load.ts';
import type { NodePorts } from './node-ports.ts';
import type { NodeProcesses } from './node-processes.ts';
import type { NodeSessions } from './node-sessions.ts';
import type { NodeTemplates } from './node-templates.ts';
import type { NodeTerminals } from './node-terminals.ts';
import type { NodeWorkspaces } from './node-workspaces.ts';

/** What a sandbox is made from; fixed for its whole life. */
export interface SandboxSpec {
  readonly template: string;
  readonly limits: SandboxLimits;
  /** The environment every command starts from. */
  readonly env: Readonly<Record<string, string>>;
  readonly noNewPrivileges: boolean;
}

export interface SandboxLimits {
  readonly memoryBytes: number;
  /** Thousandths of one core. */
  readonly cpuMillis: number;
  readonly processes: number;
  /** What its own files may take on the disk; null: as much as there is. */
  readonly diskBytes: number | null;
}

/** What may change while it runs; always applied as a whole, under the record's version. */
export interface SandboxSettings {
  readonly metadata: Readonly<Record<string, string>>;
  readonly metadataVersion: number;
  /** Wall-clock milliseconds; null: never. The node turns it into boot time when it applies it. */
  readonly expiresAtMs: number | null;
  /** Effects need this lease token while `leaseHeld`; tokens only grow. 0 before the first lease. */
  readonly leaseToken: number;
  readonly leaseHeld: boolean;
  readonly network: NetworkPolicy;
  /** What the node does at the deadline: ends it, or lets it stand still in memory. */
  readonly onExpiry: 'end' | 'pause';
  /** Whether traffic resumes it, and how many checkpoints of it are kept (null: all): control's, kept here to rebuild a record. */
  readonly autoResume: boolean;
  readonly keepCheckpoints: number | null;
  /** Who made this version and how, so that a record can be rebuilt from the node after a crash. */
  readonly change: SettingsChange;
}

export interface SettingsChange {
  readonly by: string;
  readonly atMs: number;
  readonly operationId: string | null;
}

/** Enough of the record to rebuild it from a node alone. */
export interface SandboxMark {
  readonly sandboxId: SandboxId;
  readonly teamId: string;
  readonly name: string | null;
  readonly createdAtMs: number;
  readonly createdBy: string;
  /** Made for one step of control's own work: without a record, shown to nobody, and nothing of its template is started in it. */
  readonly isHidden?: true | undefined;
}

export interface LifeOrder {
  readonly sandboxId: SandboxId;
  readonly generation: number;
}

export interface CreateSandboxOrder extends LifeOrder {
  /** Whose files it begins with; null: the template's alone. */
  readonly fromCheckpoint: CheckpointId | null;
  readonly mark: SandboxMark;
  readonly version: number;
  readonly spec: SandboxSpec;
  readonly settings: SandboxSettings;
}

export interface StartSandboxOrder extends LifeOrder {
  readonly version: number;
  readonly settings: SandboxSettings;
}

export interface StopSandboxOrder extends LifeOrder {
  readonly graceMs: number;
}

export interface ApplySettingsOrder extends LifeOrder {
  readonly version: number;
  readonly settings: SandboxSettings;
}

/** Why a life ended, as the node saw it. */
export type EndReason = 'requested' | 'expired' | 'crashed' | 'machine_rebooted';

/** One sandbox as its node has it. */
export interface NodeSandbox {
  readonly mark: SandboxMark;
  readonly spec: SandboxSpec;
  readonly generation: number;
  readonly version: number;
  readonly settings: SandboxSettings;
  readonly life:
    | { readonly kind: 'running' }
    /** Every command stands still. */
    | { readonly kind: 'paused'; readonly atMs: number }
    | { readonly kind: 'ended'; readonly reason: EndReason; readonly atMs: number };
}

/** A directory on the node that holds no readable sandbox; kept, listed, never touched. */
export interface QuarantinedSandbox {
  readonly directory: string;
  readonly why: string;
}

export interface NodeInventory {
  readonly sandboxes: readonly NodeSandbox[];
  readonly quarantined: readonly QuarantinedSandbox[];
}

export interface NodeDescription {
  readonly nodeId: NodeId;
  readonly version: string;
  /** Changes when the machine boots. */
  readonly bootId: string;
  readonly templates: readonly string[];
  readonly capacity: { readonly sandboxes: number };
}

/** An array runs without a shell; a text runs with `bash -c` (`sh -c` where the sandbox has no bash). */
export type Command = readonly string[] | string;

export interface ExecOrder extends LifeOrder {
  /** Names this run; the sandbox refuses one that was started before (`operation_in_doubt`). */
  readonly runId: string;
  /** null: the caller brought none. Refused unless it is the current one, while a lease is held. */
  readonly leaseToken: number | null;
  readonly command: Command;
  readonly cwd: string | null;
  /** null unsets what the sandbox sets. */
  readonly env: Readonly<Record<string, string | null>>;
  readonly user: string | null;
  readonly stdin: Uint8Array | null;
  readonly timeoutMs: number | null;
  /** Of stdout and stderr each; what is beyond is read, counted and dropped. */
  readonly outputLimitBytes: number;
}

export interface ExecOutcome {
  /** As shells say it: 128+n for signal n; 127 and 126 when the program could not be started. */
  readonly exitCode: number;
  readonly signal: string | null;
  readonly timedOut: boolean;
  /** Ended by a signal asked for through the API (an abort, a kill), not by itself. */
  readonly killed: boolean;
  readonly outOfMemory: boolean;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  readonly stdoutTruncated: boolean;
  readonly stderrTruncated: boolean;
  readonly startedAtMs: number;
  readonly durationMs: number;
}

/** What is known of a run that was started under this id in this life. */
export type RunReport =
  | { readonly kind: 'unknown' }
  | { readonly kind: 'running'; readonly pid: number }
  | {
      readonly kind: 'ended';
      readonly exitCode: number;
      readonly signal: string | null;
      readonly timedOut: boolean;
      readonly killed: boolean;
    };

/** `watching` comes first: what happens after it is reported, so that an inventory taken then leaves no gap. */
export type NodeEvent =
  | { readonly kind: 'watching' }
  | {
      readonly kind: 'ended';
      readonly sandboxId: SandboxId;
      readonly generation: number;
      readonly reason: EndReason;
      readonly atMs: number;
    }
  /** At its deadline, as its settings say. */
  | { readonly kind: 'paused'; readonly sandboxId: SandboxId; readonly generation: number; readonly atMs: number };

export interface NodeApi extends NodeProcesses, NodeSessions, NodeFiles, NodePorts, NodeLoad {
  readonly terminals: NodeTerminals;
  readonly branches: NodeBranches;
  readonly templates: NodeTemplates;
  readonly workspaces: NodeWorkspaces;
  describe(signal?: AbortSignal): Promise<NodeDescription>;
  inventory(signal?: AbortSignal): Promise<NodeInventory>;
  findSandbox(sandboxId: SandboxId): Promise<NodeSandbox | undefined>;
  /** Repeating the same order returns the same sandbox. A failure leaves nothing behind. */
  createSandbox(order: CreateSandboxOrder): Promise<NodeSandbox>;
  /** Begins the life `order.generation` on the files of the earlier one. */
  startSandbox(order: StartSandboxOrder): Promise<NodeSandbox>;
  /** Ends every process; the files stay. Of an ended life: succeeds again. */
  stopSandbox(order: StopSandboxOrder): Promise<NodeSandbox>;
  /** Ends and removes it with its files. Of an unknown sandbox: succeeds. */
  deleteSandbox(order: LifeOrder): Promise<void>;
  applySettings(order: ApplySettingsOrder): Promise<NodeSandbox>;
  /** `signal` stops the command: it is killed and the outcome says so. */
  exec(order: ExecOrder, signal?: AbortSignal): Promise<ExecOutcome>;
  findRun(order: LifeOrder & { readonly runId: string }): Promise<RunReport>;
  /**
   * Everything that happens after the first event, `watching`; ends when the signal aborts or the node is closed. A reader too
   * slow for the node's queue gets `output_dropped`, a lost connection `node_unavailable`: watch again, then take an inventory.
   */
  watch(signal: AbortSignal): AsyncIterable<NodeEvent>;
}
