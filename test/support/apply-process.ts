/** The other end of `apply-worker.ts`: starts it when it is needed and notices when it is gone. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { ApplyResult } from '../../src/checkout/apply/index.ts';
import type { ApplyOrder } from './apply-worker.ts';
import { programPath } from './program-path.ts';

export type ApplyAnswer =
  | { readonly result: ApplyResult | null; readonly hits: number }
  | { readonly error: string; readonly hits: number }
  | { readonly records: readonly ApplyResult[]; readonly hits: number }
  | { readonly paused: string }
  | { readonly killed: true };

export class ApplyProcess implements AsyncDisposable {
  #child: ChildProcess | undefined;
  #lines: AsyncIterator<string> | undefined;

  /** Until it is done, has paused, or was killed. */
  async order(order: ApplyOrder): Promise<ApplyAnswer> {
    return await this.#tell(JSON.stringify(order));
  }

  /** After a pause. */
  async goOn(): Promise<ApplyAnswer> {
    return await this.#tell('go on');
  }

  async #tell(line: string): Promise<ApplyAnswer> {
    const child = this.#start();
    child.stdin?.write(`${line}\n`);
    const answer = await this.#lines?.next();
    if (answer !== undefined && !answer.done) return JSON.parse(answer.value) as ApplyAnswer;
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    this.#child = undefined;
    if (child.signalCode !== 'SIGKILL') throw new Error(`The worker ended with ${child.exitCode ?? child.signalCode}.`);
    return { killed: true };
  }

  #start(): ChildProcess {
    if (this.#child !== undefined) return this.#child;
    const program = programPath('test/support/apply-worker.ts');
    const child = spawn(process.execPath, [program], { stdio: ['pipe', 'pipe', 'inherit'] });
    child.stdin?.on('error', () => {}); // It may be dead already; the missing answer tells.
    this.#child = child;
    this.#lines = createInterface({ input: child.stdout! })[Symbol.asyncIterator]();
    return child;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    child.stdin?.end();
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  }
}
