/**
 * What runs in a sandbox, by the pid or tag that callers know it by: processes and terminals are one kind to them. The tag is the name.
 * An end is remembered for a while, so that whoever comes late still hears of it.
 */
import { isPlatformError, type ProcessView, type SandboxId, type TerminalView } from '../../../protocol/index.ts';
import type { ControlPort, Shown } from '../../control-port.ts';
import type { EnvdSandbox } from '../envd-handler.ts';
import { EnvdError } from './envd-error.ts';

const pageSize = 1_000;
/** How long an end is told to those who come late. */
const rememberedMs = 30_000;
const rememberedMax = 10_000;
/** Of what one start was given; more is not shown in lists. */
const envsMaxBytes = 4_096;

export type Exit = NonNullable<Shown<ProcessView>['exit']>;

export interface Run {
  readonly kind: 'process' | 'terminal';
  readonly id: string;
  readonly pid: number;
  readonly tag: string | null;
  readonly command: string | readonly string[] | null;
  readonly cwd: string;
  /** Of its leader. */
  readonly exit: Exit | null;
  /** Where its output ends now; null: of a terminal. */
  readonly end: string | null;
}

export interface Selector {
  readonly pid?: number;
  readonly tag?: string;
}

interface Ended {
  readonly sandboxId: SandboxId;
  readonly run: Run;
  readonly atMs: number;
}

export class Runs {
  readonly #control: Pick<ControlPort, 'processes' | 'terminals'>;
  /** The oldest first. */
  readonly #ended = new Map<string, Ended>();
  /** What a start was given, which nobody else keeps. The oldest first. */
  readonly #envs = new Map<string, Readonly<Record<string, string>>>();

  constructor(control: Pick<ControlPort, 'processes' | 'terminals'>) {
    this.#control = control;
  }

  started(id: string, envs: Readonly<Record<string, string>>): void {
    if (JSON.stringify(envs).length <= envsMaxBytes) keep(this.#envs, id, envs);
  }

  envsOf(run: Run): Readonly<Record<string, string>> {
    return this.#envs.get(run.id) ?? {};
  }

  ended(sandboxId: SandboxId, run: Run, exit: Exit): void {
    this.#envs.delete(run.id);
    keep(this.#ended, run.id, { sandboxId, run: { ...run, exit }, atMs: performance.now() });
  }

  /** Those whose leader runs. */
  async list(sandbox: EnvdSandbox): Promise<readonly Run[]> {
    const [processes, terminals] = await Promise.all([this.#processes(sandbox), this.#terminals(sandbox)]);
    return [...processes, ...terminals].filter((run) => run.exit === null);
  }

  /** One whose leader runs. */
  async get(sandbox: EnvdSandbox, selector: Selector): Promise<Run> {
    const found = (await this.list(sandbox)).find((run) => isMeant(run, selector));
    if (found === undefined) throw notFound(selector);
    return found;
  }

  /** Also one that has ended not long ago. */
  async find(sandbox: EnvdSandbox, selector: Selector): Promise<Run> {
    const [processes, terminals] = await Promise.all([this.#processes(sandbox), this.#terminals(sandbox)]);
    const all = [...processes, ...terminals].filter((run) => isMeant(run, selector));
    const running = all.find((run) => run.exit === null);
    if (running !== undefined) return running;
    const nowMs = performance.now();
    const seen = [...this.#ended.values()].reverse().find((ended) => {
      const isHere = ended.sandboxId === sandbox.sandboxId && isMeant(ended.run, selector);
      return isHere && nowMs - ended.atMs < rememberedMs;
    });
    const late = all.find(({ exit }) => exit !== null && Date.now() - Date.parse(exit.endedAt) < rememberedMs);
    const found = seen?.run ?? late;
    if (found === undefined) throw notFound(selector);
    return found;
  }

  /** Those that live come first; of those that have ended one page is enough, because they are cleaned up soon. */
  async #processes({ caller, sandboxId }: EnvdSandbox): Promise<Run[]> {
    const runs: Run[] = [];
    for (let cursor: string | undefined; ; ) {
      const query = { limit: pageSize, ...(cursor !== undefined && { cursor }) };
      const page = await this.#control.processes.list(caller, sandboxId, {}, query);
      runs.push(...page.items.map(runOfProcess));
      if (page.nextCursor === null || page.items.at(-1)?.running !== true) return runs;
      cursor = page.nextCursor;
    }
  }

  async #terminals({ caller, sandboxId }: EnvdSandbox): Promise<Run[]> {
    try {
      return (await this.#control.terminals.list(caller, sandboxId)).items.map(runOfTerminal);
    } catch (error) {
      if (isPlatformError(error, 'terminal_not_found')) return [];
      throw error;
    }
  }
}

export function runOfProcess(view: Shown<ProcessView>): Run {
  const { id, pid, name: tag, command, cwd, exit, output } = view;
  return { kind: 'process', id, pid, tag, command, cwd, exit, end: output.end };
}

export function runOfTerminal(view: Shown<TerminalView>): Run {
  const { id, pid, name: tag, command, cwd, exit } = view;
  return { kind: 'terminal', id, pid, tag, command, cwd, exit, end: null };
}

function isMeant(run: Run, selector: Selector): boolean {
  if (selector.pid !== undefined) return run.pid === selector.pid;
  return selector.tag !== undefined && run.tag === selector.tag;
}

function notFound({ pid, tag }: Selector): EnvdError {
  if (pid === undefined && tag === undefined) return new EnvdError('invalid_argument', 'The process is not named.');
  return new EnvdError(
    'not_found',
    pid === undefined ? `process with tag ${tag} not found` : `process with pid ${pid} not found`,
  );
}

function keep<Value>(map: Map<string, Value>, key: string, value: Value): void {
  map.delete(key);
  map.set(key, value);
  if (map.size > rememberedMax) map.delete(map.keys().next().value!);
}
