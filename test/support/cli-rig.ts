/** The command line with its outside in the test's hand, talking to a server of `http-rig`. */
import type { CliIo } from '../../src/cli/cli-io.ts';
import { runProgram } from '../../src/cli/program.ts';
import { goodKey } from './fake-control.ts';
import { type HttpRig, openHttpRig } from './http-rig.ts';

export interface CliRun {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly stdoutBytes: Uint8Array;
}

export interface CliRig extends AsyncDisposable {
  readonly http: HttpRig;
  /** With the server's address and key. */
  run(...words: readonly string[]): Promise<CliRun>;
  /** As it is. */
  runBare(words: readonly string[], changes?: Partial<CliIo>): Promise<CliRun>;
  /** Ctrl-C. */
  interrupt(): void;
}

export async function openCliRig(given: Partial<CliIo> = {}): Promise<CliRig> {
  const http = await openHttpRig();
  const listeners = new Set<() => void>();
  const runBare = async (words: readonly string[], changes: Partial<CliIo> = {}): Promise<CliRun> => {
    const stdout: Uint8Array[] = [];
    const stderr: Uint8Array[] = [];
    const collect = (chunks: Uint8Array[]) => ({
      isTerminal: false,
      write: async (data: string | Uint8Array) => {
        chunks.push(typeof data === 'string' ? Buffer.from(data) : data);
      },
    });
    const io: CliIo = {
      stdout: collect(stdout),
      stderr: collect(stderr),
      readStdin: async () => new Uint8Array(),
      terminal: {
        isTerminal: false,
        size: () => undefined,
        setRaw: () => () => {},
        onInput: () => () => {},
        onResize: () => () => {},
      },
      env: {},
      fetch,
      nowMs: () => Date.UTC(2030, 0, 1, 0, 5),
      onInterrupt: (listener) => {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
      onSignals: () => () => {},
      cwd: '/',
      pid: 1,
      runHere: async () => 0,
      loadApp: () => Promise.reject(new Error('no app in this test')),
      programName: 'atoll',
      version: '0.0.0-test',
      ...given,
      ...changes,
    };
    const exitCode = await runProgram(words, io);
    const stdoutBytes = Buffer.concat(stdout);
    return { exitCode, stdoutBytes, stdout: stdoutBytes.toString(), stderr: Buffer.concat(stderr).toString() };
  };
  return {
    http,
    runBare,
    run: (...words) => runBare(['--url', http.url, '--key', goodKey, ...words]),
    interrupt: () => {
      for (const listener of listeners) listener();
    },
    [Symbol.asyncDispose]: () => http[Symbol.asyncDispose](),
  };
}
