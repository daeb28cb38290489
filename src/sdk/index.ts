/** The client library: `npm i atoll`, then `Sandbox.create({ url, apiKey })`. Needs fetch and nothing else. */
export type {
  AttachmentView,
  BackupView,
  CheckpointView,
  ErrorCode,
  EventView,
  KeyView,
  LeaseView,
  PlanCheckpointView,
  PlanCommitView,
  PlanStatus,
  PlanView,
  SandboxView,
  Scope,
  SessionView,
  StateKind,
  TemplateView,
  WorkspaceDiff,
  WorkspaceVersionView,
  WorkspaceView,
} from '../protocol/index.ts';
export { errorCatalog, isPlatformError, PlatformError } from '../protocol/index.ts';
export { Atoll } from './atoll.ts';
export type { BackupPage, Backups, CreateBackupOptions, RestoreBackupOptions } from './backups.ts';
export type { CheckpointPage, Checkpoints, CreateCheckpointOptions } from './checkpoints.ts';
export type { CallOptions, ClientClock, ConnectionOptions } from './connection.ts';
export type { EventsFrom } from './events.ts';
export type { ExecOptions, ExecResult } from './exec.ts';
export type { ByteStream, FileData, FileOwner } from './file-content.ts';
export type { FileChange, FileWatch, WatchOptions } from './file-watch.ts';
export type {
  ChangedFile,
  ChangeOptions,
  FileEntry,
  FileOptions,
  Files,
  OpenedFile,
  ReadOptions,
  WriteOptions,
} from './files.ts';
export type { CloneOptions, Git } from './git.ts';
export type { GitCredentials } from './git-credentials.ts';
export type { GitBranch, GitFailure, GitFileStatus, GitStatus } from './git-output.ts';
export type { AcquireLeaseOptions, HeldLease } from './leases.ts';
export type {
  CommitPlanOptions,
  PlanCheckpointOptions,
  PlanPage,
  PlanRecovery,
  Plans,
  RevertPlanOptions,
  RollBackPlanOptions,
} from './plans.ts';
export type { ExposedPort, ExposeOptions, Exposure, PortList, Ports } from './ports.ts';
export type { OutputFrom, OutputItem } from './process-output.ts';
export type { LogMatch, WaitForLogOptions, WaitForPortOptions } from './process-waits.ts';
export { Process, Processes, type StartProcessOptions, type WaitOptions } from './processes.ts';
export {
  type ClientChoice,
  type CreateSandboxOptions,
  type Fork,
  type ForkOptions,
  type ListSandboxesOptions,
  type MetadataHistory,
  type MetadataView,
  type NetworkInput,
  type PauseOptions,
  Sandbox,
  type UpdateSandboxOptions,
} from './sandbox.ts';
export type {
  AttachOptions,
  CommitOptions,
  CommitResult,
  SandboxDiff,
  SandboxWorkspace,
  SandboxWorkspaces,
} from './sandbox-workspaces.ts';
export {
  type CreateSessionOptions,
  Session,
  type SessionExecOptions,
  type SessionExecResult,
  Sessions,
  type StartSessionProcessOptions,
} from './sessions.ts';
export { TemplateBuild, type TemplateSourceInput, Templates } from './templates.ts';
export { type OpenTerminalOptions, Terminal, type TerminalExit, Terminals } from './terminals.ts';
export type {
  CreateWorkspaceOptions,
  ExportOptions,
  ImportOptions,
  WorkspaceDetails,
  WorkspacePage,
  Workspaces,
  WorkspaceVersionDetails,
  WorkspaceVersionPage,
} from './workspaces.ts';
