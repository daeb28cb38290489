/**
 * A terminal of a sandbox in our own: keys go there as they are pressed, output comes as it is, and the size follows ours. Ctrl-P Ctrl-Q leaves
 * it running. Our terminal is as it was before, however this ends.
 */
import type { Terminal } from '../sdk/index.ts';
import type { CommandCall } from './command-call.ts';
import { DetachKeys } from './detach-keys.ts';
import { exitCodes } from './exit-codes.ts';
import { ScreenModes } from './screen-modes.ts';

/** Where our input ends, that of the program ends too. */
const endOfInput = '\x04';

/** Answers with the exit code of its program, or of leaving it. */
export async function visitTerminal(call: CommandCall, terminal: Terminal): Promise<number> {
  await new Visit(call, terminal).run();
  return call.exitCode;
}

/** From attaching to leaving. */
class Visit {
  readonly #call: CommandCall;
  readonly #terminal: Terminal;
  readonly #modes = new ScreenModes();

  constructor(call: CommandCall, terminal: Terminal) {
    this.#call = call;
    this.#terminal = terminal;
  }

  async run(): Promise<void> {
    const { io } = this.#call;
    const terminal = this.#terminal;
    const leave = () => terminal.close();
    const keys = new DetachKeys({ onKeys: (bytes) => this.#try(() => terminal.write(bytes)), onDetach: leave });
    const type = (bytes: Uint8Array) =>
      io.terminal.isTerminal ? keys.type(bytes) : this.#try(() => terminal.write(bytes));
    const undo = [
      io.terminal.setRaw(),
      io.onInterrupt(() => {
        this.#call.exitCode = exitCodes.interrupted;
        leave();
      }),
      io.terminal.onInput(type, () => this.#try(() => terminal.write(endOfInput))),
      io.terminal.onResize(() => this.#fit()),
      terminal.onRefusal((error) => void this.#call.note(`\r\natoll: ${error.message}\r`)),
      terminal.onDropped((bytes) => void this.#call.note(`\r\natoll: about ${bytes} bytes of output were lost.\r`)),
    ];
    try {
      this.#fit();
      for await (const bytes of terminal) {
        this.#modes.see(bytes);
        await io.stdout.write(bytes);
      }
      const exit = await terminal.exited;
      if (exit !== undefined) this.#call.exitCode = exit.exitCode ?? exitCodes.outcomeUnknown;
    } finally {
      keys.close();
      leave();
      for (const step of undo.reverse()) step();
      if (io.stdout.isTerminal) await io.stdout.write(this.#modes.undo());
    }
  }

  #fit(): void {
    const size = this.#call.io.terminal.size();
    if (size !== undefined) this.#try(() => this.#terminal.resize(size));
  }

  /** What is typed after its end, or while there is no connection for long, is lost, as on any line. */
  #try(work: () => void): void {
    try {
      work();
    } catch {
      // The end itself is told by the reading.
    }
  }
}
