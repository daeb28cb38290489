/** Everything outside that a command touches, so that a test can hold it in its hand. */

export interface OutputStream {
  /** Resolves when it has left, or when nobody reads it any more. */
  write(data: string | Uint8Array): Promise<void>;
  readonly isTerminal: boolean;
}

export interface LocalTerminal {
  /** Whether a person types. */
  readonly isTerminal: boolean;
  /** `undefined` where our output is none. */
  size(): { readonly columns: number; readonly rows: number } | undefined;
  /** Keys come as they are pressed, Ctrl-C too; the answer takes it back. Without a terminal it does nothing. */
  setRaw(): () => void;
  /** What is typed, and its end; the answer takes it back. */
  onInput(listener: (bytes: Uint8Array) => void, onEnd: () => void): () => void;
  onResize(listener: () => void): () => void;
}

export interface CliIo {
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  /** Refuses more than the limit. */
  readStdin(limitBytes: number): Promise<Uint8Array>;
  readonly terminal: LocalTerminal;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** In place of what the client library sends through by itself. */
  readonly fetch?: typeof fetch;
  nowMs(): number;
  /** Where we stand. */
  readonly cwd: string;
  readonly pid: number;
  /** Calls on SIGINT and SIGTERM instead of ending the process; the answer takes it back. */
  onInterrupt(listener: () => void): () => void;
  /** Calls on SIGINT, SIGTERM and SIGHUP, each time, instead of ending the process; the answer takes it back. */
  onSignals(listener: (signal: 'INT' | 'TERM' | 'HUP') => void): () => void;
  /** Runs a program here, with our own standard streams; ends it when the signal aborts. Answers as a shell would. */
  runHere(
    command: readonly string[],
    options: { readonly env: Readonly<Record<string, string>>; readonly signal: AbortSignal },
  ): Promise<number>;
  /** The platform itself, loaded only by the commands that run it or look for it. */
  loadApp(): Promise<AppPort>;
  /** How to type this program again, for lines to paste. */
  readonly programName: string;
  readonly version: string;
}

/** What the command line asks of `app`. */
export type AppPort = Pick<
  typeof import('../app/index.ts'),
  'serve' | 'runNode' | 'runDoctor' | 'findLocalServer' | 'defaultDataDirectory'
>;
