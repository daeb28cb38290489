/** The real outside: this process, its streams, its signals. */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { dirname, join, relative } from 'node:path';
import type { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { CliError } from './cli-error.ts';
import type { CliIo, OutputStream } from './cli-io.ts';
import { exitCodes } from './exit-codes.ts';
import { localTerminal } from './local-terminal.ts';

/** Between asking a program to end and ending it. */
const killAfterMs = 5_000;

export function processIo(): CliIo {
  const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
  return {
    stdout: outputStream(process.stdout),
    stderr: outputStream(process.stderr),
    readStdin,
    terminal: localTerminal(),
    env: process.env,
    nowMs: () => Date.now(),
    cwd: process.cwd(),
    pid: process.pid,
    onInterrupt,
    onSignals,
    runHere,
    loadApp: () => import('../app/index.ts'),
    programName: programName(root),
    version: (JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }).version,
  };
}

function outputStream(stream: Writable & { readonly isTTY?: boolean }): OutputStream {
  // A reader that went away (`| head`) is not a failure of ours.
  stream.on('error', () => {});
  return {
    isTerminal: stream.isTTY === true,
    write: (data) =>
      data.length === 0 || stream.destroyed
        ? Promise.resolve()
        : new Promise((resolve) => stream.write(data, () => resolve())),
  };
}

async function readStdin(limitBytes: number): Promise<Uint8Array> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    size += chunk.byteLength;
    if (size > limitBytes) {
      throw new CliError(`Standard input is larger than ${limitBytes} bytes.`, {
        exitCode: exitCodes.refused,
        code: 'stdin_too_large',
        hint: 'Put it into a file of the sandbox in parts.',
      });
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function onInterrupt(listener: () => void): () => void {
  let isFirst = true;
  const onSignal = () => {
    // Whoever asks twice does not want to wait.
    if (!isFirst) process.exit(exitCodes.interrupted);
    isFirst = false;
    listener();
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, onSignal);
  return () => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, onSignal);
  };
}

function onSignals(listener: (signal: 'INT' | 'TERM' | 'HUP') => void): () => void {
  const undo = (['INT', 'TERM', 'HUP'] as const).map((signal) => {
    const hear = () => listener(signal);
    process.on(`SIG${signal}`, hear);
    return () => process.off(`SIG${signal}`, hear);
  });
  return () => {
    for (const step of undo) step();
  };
}

function runHere(
  [program, ...rest]: readonly string[],
  options: { readonly env: Readonly<Record<string, string>>; readonly signal: AbortSignal },
): Promise<number> {
  const { env, signal } = options;
  return new Promise((resolve, reject) => {
    const child = spawn(program ?? '', rest, { stdio: 'inherit', env: { ...process.env, ...env } });
    let killTimer: NodeJS.Timeout | undefined;
    const end = () => {
      child.kill('SIGTERM');
      killTimer = setTimeout(() => child.kill('SIGKILL'), killAfterMs);
    };
    const over = () => {
      clearTimeout(killTimer);
      signal.removeEventListener('abort', end);
    };
    signal.addEventListener('abort', end, { once: true });
    child.on('error', (error: NodeJS.ErrnoException) => {
      over();
      const hint = 'Give a program that is on the PATH.';
      const message = `Cannot run ${program}: ${error.message}.`;
      reject(new CliError(message, { exitCode: error.code === 'ENOENT' ? 127 : 126, code: 'cannot_run', hint }));
    });
    child.on('exit', (code, endedBy) => {
      over();
      resolve(code ?? 128 + (endedBy === null ? 0 : constants.signals[endedBy]));
    });
  });
}

/** From a checkout by its file, because `atoll` is on no PATH there. */
function programName(root: string): string {
  if (!existsSync(join(root, 'src', 'cli', 'main.ts'))) return 'npx atoll';
  const file = relative(process.cwd(), join(root, 'bin', 'atoll.mjs'));
  return `node ${file.startsWith('..') ? join(root, 'bin', 'atoll.mjs') : file}`;
}
