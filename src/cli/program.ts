/** The command line: every command, the options they share, and what each outcome exits with. */
import { Command, CommanderError, Option } from 'commander';
import type { CliIo } from './cli-io.ts';
import { Actions, type AddCommand } from './command-adder.ts';
import { addBackup } from './commands/backup.ts';
import { addBg } from './commands/bg.ts';
import { addCheckpoint } from './commands/checkpoint.ts';
import { addCompletion } from './commands/completion.ts';
import { addCp } from './commands/cp.ts';
import { addCreate } from './commands/create.ts';
import { addDoctor } from './commands/doctor.ts';
import { addEvents } from './commands/events.ts';
import { addExec } from './commands/exec.ts';
import { addExtend } from './commands/extend.ts';
import { addFiles } from './commands/files.ts';
import { addInfo } from './commands/info.ts';
import { addInit } from './commands/init.ts';
import { addKeys } from './commands/keys.ts';
import { addKill } from './commands/kill.ts';
import { addLease } from './commands/lease.ts';
import { addLogs } from './commands/logs.ts';
import { addLs } from './commands/ls.ts';
import { addMcp } from './commands/mcp.ts';
import { addMetadata } from './commands/metadata.ts';
import { addNetwork } from './commands/network.ts';
import { addNode } from './commands/node.ts';
import { addOpen } from './commands/open.ts';
import { addOperations } from './commands/operations.ts';
import { addFork, addPause, addRestore, addResume } from './commands/pause.ts';
import { addPlan } from './commands/plan.ts';
import { addPorts } from './commands/ports.ts';
import { addPs } from './commands/ps.ts';
import { addReconcile } from './commands/reconcile.ts';
import { addReset } from './commands/reset.ts';
import { addRm } from './commands/rm.ts';
import { addRun } from './commands/run.ts';
import { addServe } from './commands/serve.ts';
import { addSession } from './commands/session.ts';
import { addSh } from './commands/sh.ts';
import { addStart } from './commands/start.ts';
import { addStop } from './commands/stop.ts';
import { addSync } from './commands/sync.ts';
import { addTeams } from './commands/teams.ts';
import { addTemplate } from './commands/template.ts';
import { addTerminals } from './commands/terminals.ts';
import { addTokens } from './commands/tokens.ts';
import { addTunnel } from './commands/tunnel.ts';
import { addUndo } from './commands/undo.ts';
import { addUsers } from './commands/users.ts';
import { addWait } from './commands/wait.ts';
import { addWebhooks } from './commands/webhooks.ts';
import { addWorkspace } from './commands/workspace.ts';
import { exitCodes } from './exit-codes.ts';
import { explainError } from './explain-error.ts';
import { processIo } from './process-io.ts';

/** In the order of the help. */
const commands: readonly AddCommand[] = [
  addServe,
  addCreate,
  addExec,
  addInit,
  addSync,
  addUndo,
  addBg,
  addRun,
  addSh,
  addPs,
  addLogs,
  addKill,
  addWait,
  addSession,
  addPorts,
  addOpen,
  addTunnel,
  addTerminals,
  addCp,
  addFiles,
  addTemplate,
  addLs,
  addInfo,
  addStop,
  addStart,
  addPause,
  addResume,
  addCheckpoint,
  addRestore,
  addFork,
  addBackup,
  addPlan,
  addWorkspace,
  addReset,
  addRm,
  addMetadata,
  addExtend,
  addNetwork,
  addLease,
  addEvents,
  addKeys,
  addTokens,
  addUsers,
  addTeams,
  addWebhooks,
  addOperations,
  addReconcile,
  addDoctor,
  addNode,
  addMcp,
  addCompletion,
];

/** `finish` hears the exit code of the command that ran. */
export function buildProgram(io: CliIo = processIo(), finish: (exitCode: number) => void = () => {}): Command {
  const program = new Command('atoll')
    .description('Linux sandboxes that many AI agents can share safely.')
    .version(io.version)
    .option('--json', 'print the result as JSON and nothing else on stdout')
    .addOption(new Option('--url <url>', 'the server').env('ATOLL_URL'))
    .addOption(new Option('--key <key>', 'the API key').env('ATOLL_API_KEY'))
    .addOption(new Option('--data <directory>', 'of a server on this machine').env('ATOLL_DATA'))
    .configureHelp({ showGlobalOptions: true })
    .exitOverride();
  const actions = new Actions(io, finish);
  for (const add of commands) add(program, actions);
  configureAll(program);
  return program;
}

/** Runs one command line and answers with the exit code. */
export async function runProgram(words: readonly string[], io: CliIo): Promise<number> {
  let exitCode: number = exitCodes.done;
  const writes: Promise<void>[] = [];
  const program = buildProgram(io, (code) => {
    exitCode = code;
  });
  configureOutput(program, io, writes);
  try {
    await program.parseAsync([...words], { from: 'user' });
  } catch (error) {
    exitCode = await reportFailure(error, { io, isJson: words.slice(0, indexOfCommand(words)).includes('--json') });
  }
  await Promise.all(writes);
  return exitCode;
}

async function reportFailure(
  error: unknown,
  options: { readonly io: CliIo; readonly isJson: boolean },
): Promise<number> {
  const { io, isJson } = options;
  if (error instanceof CommanderError) {
    // Commander has told it already, help and version included, which are no failures.
    if (error.exitCode === 0) return exitCodes.done;
    const message = error.message.replace(/^error: /, '');
    if (isJson) await io.stdout.write(`${JSON.stringify({ error: { code: 'usage', message } })}\n`);
    return exitCodes.usage;
  }
  const { text, json, exitCode } = explainError(error);
  if (isJson) await io.stdout.write(`${JSON.stringify(json)}\n`);
  if (text !== '') await io.stderr.write(text);
  return exitCode;
}

/** What stands behind `--` belongs to the command that is run, not to us. */
function indexOfCommand(words: readonly string[]): number {
  const index = words.indexOf('--');
  return index === -1 ? words.length : index;
}

/** Commander copies such settings to commands only when they are made, and to theirs not at all. */
function configureAll(command: Command): void {
  for (const inner of command.commands) {
    inner.copyInheritedSettings(command);
    configureAll(inner);
  }
}

function configureOutput(command: Command, io: CliIo, writes: Promise<void>[]): void {
  command.configureOutput({
    writeOut: (text) => writes.push(io.stdout.write(text)),
    writeErr: (text) => writes.push(io.stderr.write(text)),
    outputError: (text, write) => write(text.replace(/^error: /, 'atoll: ')),
  });
  for (const inner of command.commands) configureOutput(inner, io, writes);
}
