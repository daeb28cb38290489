/** Everything that crosses a process boundary. */
export { addressRange, isWithin, rangeText } from './address-ranges.ts';
export type { ErrorBody, ErrorCode, ErrorSpec, PlatformErrorOptions } from './errors.ts';
export { errorCatalog, isErrorCode, isPlatformError, PlatformError } from './errors.ts';
export type {
  ApplyId,
  BackupId,
  BuildId,
  CheckpointId,
  ContextId,
  Id,
  IdKind,
  KeyId,
  LayerId,
  LeaseId,
  NodeId,
  OperationId,
  PlanCheckpointId,
  PlanCommitId,
  PlanId,
  ProcessId,
  RandomSource,
  RequestId,
  SandboxId,
  SessionId,
  TeamId,
  TemplateId,
  TerminalId,
  TokenId,
  UserId,
  WebhookId,
  WorkspaceId,
  WritableId,
} from './ids.ts';
export { idPrefixes, idSchema, isId, newId, systemRandom } from './ids.ts';
export type { NetworkPolicy, NetworkRule } from './network.ts';
export { closedRanges, fullNetwork, networkLimits, networkPolicy, noNetwork, privateRanges } from './network.ts';
export type {
  ApplySettingsOrder,
  Command,
  CreateSandboxOrder,
  EndReason,
  ExecOrder,
  ExecOutcome,
  LifeOrder,
  NodeApi,
  NodeDescription,
  NodeEvent,
  NodeInventory,
  NodeSandbox,
  QuarantinedSandbox,
  RunReport,
  SandboxLimits,
  SandboxMark,
  SandboxSettings,
  SandboxSpec,
  SettingsChange,
  StartSandboxOrder,
  StopSandboxOrder,
} from './node-api.ts';
export type {
  CheckpointOrder,
  DiskUsage,
  NodeBranches,
  NodeCheckpoint,
  PauseMode,
  PauseOrder,
  RestoreOrder,
  ResumeOrder,
  StorageDescription,
} from './node-branches.ts';
export type {
  FileAction,
  FileActionKind,
  FileActionOrder,
  FileAnswers,
  FileChange,
  FileChanges,
  FileChangesOrder,
  FileContent,
  FileEntry,
  FileEvent,
  FileList,
  FileOrder,
  FileType,
  NodeFiles,
  ReadFileOrder,
  ReadTreeOrder,
  WatchFilesOrder,
  WriteFileOrder,
  WriteTreeOrder,
  WrittenTree,
} from './node-files.ts';
export { fileTypes } from './node-files.ts';
export type { NodeLoad, SandboxLoad } from './node-load.ts';
export type { ByteConnection, ListeningPort, NodePorts, OpenPortOrder } from './node-ports.ts';
export type {
  FollowProcessOrder,
  KillProcessesOrder,
  ListProcessesOrder,
  NodeProcess,
  NodeProcesses,
  OutputRange,
  PortReport,
  ProbePortOrder,
  ProcessExit,
  ProcessItem,
  ProcessOrder,
  ProcessPage,
  SignalProcessOrder,
  StartProcessOrder,
  WaitProcessOrder,
  WriteStdinOrder,
} from './node-processes.ts';
export type {
  CreateSessionOrder,
  DeleteSessionOrder,
  NodeSession,
  NodeSessions,
  SessionEnd,
  SessionEndReason,
  SessionExecOrder,
  SessionExecOutcome,
  SessionOrder,
  SessionTurn,
  SetSessionEnvOrder,
  StartSessionProcessOrder,
} from './node-sessions.ts';
export { sessionEndReasons } from './node-sessions.ts';
export type {
  AppendContextOrder,
  BuildFailure,
  BuildItem,
  BuildOrder,
  BuildTemplateOrder,
  NodeBuild,
  NodeTemplate,
  NodeTemplates,
  TemplateDefaults,
  TemplateOrder,
  TemplateReadiness,
  TemplateSource,
  TemplateStart,
} from './node-templates.ts';
export type {
  ChangeTerminalOrder,
  DestroyTerminalOrder,
  FollowTerminalOrder,
  NodeTerminal,
  NodeTerminals,
  OpenTerminalOrder,
  SignalTerminalOrder,
  TerminalItem,
  TerminalOrder,
  TerminalPlace,
  TerminalSize,
  TerminalTarget,
  WriteTerminalOrder,
} from './node-terminals.ts';
export type {
  ChangeCounts,
  CollectedTree,
  CollectOrder,
  CommitAuthor,
  CommitTreeOrder,
  ConflictSide,
  GitObjectId,
  ImportSource,
  MergeOutcome,
  NodeWorkspaces,
  RemoteOrder,
  WorkspaceCommit,
  WorkspaceConflict,
  WorkspaceFileChange,
  WorkspaceOrder,
} from './node-workspaces.ts';
export type { OutputFrame, OutputFrameKind } from './output-frames.ts';
export {
  OutputFrameReader,
  outputFrameHeadBytes,
  outputFrameKinds,
  outputFramesType,
  writeOutputFrameHead,
} from './output-frames.ts';
export type { MemberFailure, PlanState } from './plan-state.ts';
export { busyPlanStates, livePlanStates, memberFailure, planState, planStateKinds } from './plan-state.ts';
export { RandomPool } from './random-pool.ts';
export type {
  AnyRoute,
  BodyInputOf,
  BodyOf,
  Conditions,
  Method,
  ParamsInputOf,
  ParamsOf,
  QueryInputOf,
  QueryOf,
  ResultOf,
  RouteSpec,
  Scope,
} from './route.ts';
export { commonErrors, conditionHeaders, mutationErrors, scopes } from './route.ts';
export type { BackupView } from './routes/backups.ts';
export { backupLimits } from './routes/backups.ts';
export type { CheckpointView } from './routes/branches.ts';
export { branchLimits, checkpointStates } from './routes/branches.ts';
export type { EventView } from './routes/events.ts';
export type { ExecResult } from './routes/exec.ts';
export { execLimits } from './routes/exec.ts';
export type { FileChangeView, FileEventView, FileView } from './routes/files.ts';
export { fileLimits } from './routes/files.ts';
export type { RouteName } from './routes/index.ts';
export { routes } from './routes/index.ts';
export type { LeaseView } from './routes/leases.ts';
export { leaseLimits } from './routes/leases.ts';
export type { PlanCheckpointView, PlanCommitView, PlanStatus, PlanView } from './routes/plans.ts';
export { planLimits } from './routes/plans.ts';
export type { ExposureView, ListeningPortView } from './routes/ports.ts';
export { portLimits, previewToken } from './routes/ports.ts';
export type { ProcessOutputItem, ProcessView } from './routes/processes.ts';
export { processLimits } from './routes/processes.ts';
export type { SandboxView } from './routes/sandboxes.ts';
export type { SessionExecResult, SessionView } from './routes/sessions.ts';
export { sessionLimits } from './routes/sessions.ts';
export type { BuildLogItem, BuildView, TemplateView } from './routes/templates.ts';
export { templateLimits } from './routes/templates.ts';
export type { TerminalMessage, TerminalRequest, TerminalView } from './routes/terminals.ts';
export { terminalKeyProtocol, terminalLimits, terminalProtocol, terminalRequest } from './routes/terminals.ts';
export type { KeyView } from './routes/who.ts';
export type {
  AttachmentView,
  WorkspaceDiff,
  WorkspaceVersionView,
  WorkspaceView,
} from './routes/workspaces.ts';
export { workspaceLimits } from './routes/workspaces.ts';
export type { BeforeRestore, PausedState, PauseReason, SandboxState, StateKind, StopReason } from './sandbox-state.ts';
export { stateKinds } from './sandbox-state.ts';
export { metadataLimits, pageLimitMax } from './schemas.ts';
