export { AssertionError, assert, assertNever } from './assert.ts';
export { AtMost } from './at-most.ts';
export { BackgroundLoop, type BackgroundLoopOptions } from './background-loop.ts';
export { isGitName, nameBytes, nameText, zeroSeparated } from './byte-names.ts';
export { type Clock, SystemClock, systemTimers, type Timers } from './clock.ts';
export { DirectoryInUse, DirectoryLock } from './directory-lock.ts';
export {
  type PreparedFile,
  prepareFile,
  prepareSmallFile,
  syncDirectory,
  writeFileDurably,
} from './durable-file.ts';
export { type FaultPoints, noFaults } from './fault-points.ts';
export {
  BodyReader,
  encodeFrame,
  type Frame,
  FrameReader,
  field,
  frameLimitBytes,
  MalformedFrame,
  readFields,
  textField,
  u8,
  u16,
  u32,
  u64,
} from './frame-codec.ts';
export { joinStreams } from './join-streams.ts';
export { KeptFiles } from './kept-files.ts';
export { KeyedMutex } from './keyed-mutex.ts';
export {
  apartFromLocks,
  askFor,
  type LockHold,
  type LockPlace,
  lockAsked,
  lockHeld,
  lockLeft,
  whileHeld,
} from './lock-order.ts';
export {
  createLogger,
  type LogFields,
  type Logger,
  type LoggerOptions,
  type LogLevel,
  silentLogger,
} from './logger.ts';
export { redact } from './redact.ts';
export { characterStart, safeStart } from './safe-start.ts';
export { type FaultAction, type Gate, parseFaults, ScriptedFaults } from './scripted-faults.ts';
export { type Pieces, sendPieces } from './send-pieces.ts';
export { SharedLock } from './shared-lock.ts';
export { SmallFiles } from './small-files.ts';
export { through } from './through.ts';
