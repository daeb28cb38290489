/** exec: one stateless command. Control checks and passes on; it neither queues nor keeps anything, unless a key asks for it. */
import {
  type BodyOf,
  type Conditions,
  type ExecOrder,
  type ExecOutcome,
  type ExecResult,
  execLimits,
  PlatformError,
  type routes,
  type SandboxId,
} from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { CallParts } from './change-in-life.ts';
import type { ControlContext } from './context.ts';
import type { Operation } from './mutations.ts';
import { checkEnvironment } from './sandbox-creation.ts';
import { lifeIn, lifeOf } from './sandbox-records.ts';

type ExecBody = BodyOf<typeof routes.exec>;

/** What an answer under an idempotency key keeps of each stream. */
const keptOutputBytes = 1024 * 1024;

export class Execution {
  readonly #context: ControlContext;
  readonly #parts: CallParts;

  constructor(context: ControlContext, parts: CallParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async exec(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: ExecBody,
    signal?: AbortSignal,
  ): Promise<ExecResult> {
    checkCommand(body.command);
    checkEnvironment(body.env ?? {});
    return await this.#parts.mutations.run({
      caller,
      kind: 'exec',
      conditions,
      request: { sandboxId, body },
      about: (tables) => lifeIn(tables, sandboxId),
      effect: (operation) =>
        this.#parts.gate.pass(sandboxId, conditions, () =>
          this.#run({ caller, sandboxId, conditions, body, operation }, signal),
        ),
      resume: (operation) => this.#resume({ caller, sandboxId, conditions, body, operation }, signal),
      keep: keepOutput,
    });
  }

  async #run(asked: Asked, signal: AbortSignal | undefined): Promise<ExecResult> {
    const { caller, sandboxId, conditions, body, operation } = asked;
    const record = await this.#parts.records.openTo(caller, sandboxId, conditions);
    const order = orderOf(record, conditions, body, operation);
    await this.#context.faults.hit('before-exec-on-node');
    const outcome = await this.#context.nodes.call(record.nodeId, (node) => node.exec(order, signal));
    await this.#context.faults.hit('after-exec-on-node');
    return execResultOf(outcome, { record, operation, encoding: body.encoding });
  }

  /** After a crash: init knows whether this run was started, as long as it is the same life. */
  async #resume(asked: Asked, signal: AbortSignal | undefined): Promise<ExecResult> {
    const { caller, sandboxId, operation } = asked;
    const record = await this.#parts.records.find(sandboxId);
    const isThere = record?.teamId === caller.teamId && record.state.kind === 'running';
    if (!isThere || operation.subjectId !== lifeOf(record)) throw execInDoubt(operation, 'unknown', null);
    const { nodeId, generation } = record;
    const order = { sandboxId, generation, runId: operation.id };
    const run = await this.#context.nodes.call(nodeId, (node) => node.findRun(order));
    if (run.kind === 'unknown') return await this.#run(asked, signal);
    throw execInDoubt(operation, run.kind, run.kind === 'ended' ? run.exitCode : null);
  }
}

interface Asked {
  readonly caller: Caller;
  readonly sandboxId: SandboxId;
  readonly conditions: Conditions;
  readonly body: ExecBody;
  readonly operation: Operation;
}

function orderOf(record: SandboxRecord, conditions: Conditions, body: ExecBody, operation: Operation): ExecOrder {
  return {
    sandboxId: record.id,
    generation: record.generation,
    runId: operation.id,
    leaseToken: conditions.leaseToken ?? null,
    command: body.command,
    cwd: body.cwd ?? null,
    env: body.env ?? {},
    user: body.user ?? null,
    stdin: body.stdin === undefined ? null : bytesOf(body.stdin),
    timeoutMs: body.timeoutMs ?? null,
    outputLimitBytes: body.outputLimitBytes,
  };
}

export function execResultOf(
  outcome: ExecOutcome,
  about: { record: SandboxRecord; operation: Operation; encoding: 'utf8' | 'base64' },
): ExecResult {
  const { stdout, stderr, startedAtMs, ...facts } = outcome;
  return {
    ...facts,
    stdout: textOf(stdout, about.encoding),
    stderr: textOf(stderr, about.encoding),
    encoding: about.encoding,
    startedAt: new Date(startedAtMs).toISOString(),
    operationId: about.operation.id,
    generation: about.record.generation,
  };
}

function textOf(bytes: Uint8Array, encoding: 'utf8' | 'base64'): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString(encoding);
}

export function bytesOf(input: string | { base64: string }): Uint8Array {
  return typeof input === 'string' ? Buffer.from(input, 'utf8') : Buffer.from(input.base64, 'base64');
}

/** What of a result is journalled under an idempotency key. */
export function keepOutput<Result extends ExecResult>(result: Result): Result {
  const cut = (text: string) => (text.length <= keptOutputBytes ? text : text.slice(0, keptOutputBytes));
  return {
    ...result,
    stdout: cut(result.stdout),
    stderr: cut(result.stderr),
    stdoutTruncated: result.stdoutTruncated || result.stdout.length > keptOutputBytes,
    stderrTruncated: result.stderrTruncated || result.stderr.length > keptOutputBytes,
  };
}

export function execInDoubt(operation: Operation, run: string, exitCode: number | null): PlatformError {
  const details = { operationId: operation.id, run, exitCode };
  const message =
    run === 'unknown'
      ? 'The command may have been started before it was interrupted, in a life that is over; it is not run again.'
      : 'The command was started before it was interrupted; its output is lost, and it is not run again.';
  return new PlatformError('operation_in_doubt', message, { details });
}

export function checkCommand(command: ExecBody['command']): void {
  const refuse = (message: string) => new PlatformError('invalid_command', message, { details: { path: 'command' } });
  if (typeof command === 'string') {
    if (command.trim() === '') throw refuse('The command is empty.');
    if (command.includes('\0')) throw refuse('The command has a NUL byte.');
    if (Buffer.byteLength(command) > execLimits.commandBytes)
      throw refuse(`A command has at most ${execLimits.commandBytes} bytes.`);
    return;
  }
  if (command.length === 0 || command[0] === '') throw refuse('The command is empty.');
  if (command.some((argument) => argument.includes('\0'))) throw refuse('An argument has a NUL byte.');
}
