/**
 * `npm run bench`: measures in one run, each figure beside the peer or the limit it is judged by.
 *
 *   npm run bench                          every row
 *   npm run bench -- --only create,exec    some
 *   npm run bench -- --write               also writes bench/results.md
 *
 * A missed limit is told and does not stop the run or fail it; a row that breaks does fail it. Times are judged only here and
 * never in tests, and mean something only on a machine that does nothing else.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type Finding, failed } from './finding.ts';
import type { Row, Scope } from './row.ts';
import { branchesRow } from './rows/branches.ts';
import { burstRow, createRow } from './rows/create.ts';
import { e2bRow } from './rows/e2b.ts';
import { execParallelRow, execRow } from './rows/exec.ts';
import { expiryRow } from './rows/expiry.ts';
import { filesRow } from './rows/files.ts';
import { layersRow } from './rows/layers.ts';
import { leaseRow } from './rows/lease.ts';
import { listRow } from './rows/list.ts';
import { memoryRow } from './rows/memory.ts';
import { metadataRow } from './rows/metadata.ts';
import { networkRow } from './rows/network.ts';
import { plansRow } from './rows/plans.ts';
import { portsRow } from './rows/ports.ts';
import { processMemoryRow, processRow } from './rows/process.ts';
import { recoveryRow } from './rows/recovery.ts';
import { sessionsRow } from './rows/sessions.ts';
import { syncRow } from './rows/sync.ts';
import { terminalsRow } from './rows/terminals.ts';
import { layersDirectoryOf } from './start.ts';
import { describeMachine } from './system.ts';
import { formatCounts, formatTable } from './table.ts';

const rows: readonly Row[] = [
  createRow,
  burstRow,
  execRow,
  execParallelRow,
  processRow,
  processMemoryRow,
  filesRow,
  sessionsRow,
  portsRow,
  terminalsRow,
  memoryRow,
  metadataRow,
  leaseRow,
  listRow,
  recoveryRow,
  expiryRow,
  networkRow,
  branchesRow,
  plansRow,
  layersRow,
  e2bRow,
  syncRow,
];

await main();

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { only: { type: 'string' }, write: { type: 'boolean', default: false } } });
  const chosen = choose(values.only);
  const directory = await mkdtemp(join(tmpdir(), 'atoll-bench-'));
  // Servers build their template once for the whole run, and the raw path uses the same one.
  process.env['ATOLL_LAYERS'] = layersDirectoryOf(directory);
  const findings: Finding[] = [];
  try {
    for (const row of chosen) findings.push(...(await runRow(row, directory)));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  const report = `${describeMachine()}\n\n${formatTable(findings)}\n${formatCounts(findings)}\n`;
  process.stdout.write(`\n${report}`);
  if (values.write) await writeFile(join(import.meta.dirname, 'results.md'), resultsPage(report));
  if (findings.some(({ verdict }) => verdict === 'failed')) process.exitCode = 1;
}

function choose(only: string | undefined): readonly Row[] {
  if (only === undefined) return rows;
  const names = only.split(',').map((name) => name.trim());
  const unknown = names.filter((name) => !rows.some((row) => row.name === name));
  if (unknown.length > 0) {
    process.stderr.write(
      `There is no row ${unknown.join(', ')}; there are ${rows.map(({ name }) => name).join(', ')}.\n`,
    );
    process.exit(2);
  }
  return rows.filter(({ name }) => names.includes(name));
}

async function runRow(row: Row, directory: string): Promise<readonly Finding[]> {
  const startedAt = performance.now();
  const stack = new AsyncDisposableStack();
  let exiting: Promise<never> | undefined;
  const interrupt = (signal: NodeJS.Signals) => {
    exiting ??= removeAndExit({ stack, directory, signal });
  };
  process.on('SIGINT', interrupt).on('SIGTERM', interrupt);
  const findings = await measure(row, { stack, directory });
  // The row fails when its platform is taken away; nothing may go on while that is being cleaned up.
  if (exiting !== undefined) await exiting;
  try {
    await stack.disposeAsync();
  } catch (error) {
    findings.push(failed(`${row.name}: cleaning up`, error));
  }
  process.off('SIGINT', interrupt).off('SIGTERM', interrupt);
  const seconds = Math.round((performance.now() - startedAt) / 1_000);
  process.stderr.write(`${row.name}: ${findings.map(({ verdict }) => verdict).join(', ')} (${seconds} s)\n`);
  return findings;
}

async function measure(row: Row, scope: Scope): Promise<Finding[]> {
  try {
    return [...(await row.run(scope))];
  } catch (error) {
    if (scope.stack.disposed) return [];
    process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
    return [failed(row.name, error)];
  }
}

async function removeAndExit(options: Scope & { readonly signal: NodeJS.Signals }): Promise<never> {
  process.stderr.write(`${options.signal}: removing what was started\n`);
  await options.stack.disposeAsync().catch((error: unknown) => process.stderr.write(`${String(error)}\n`));
  await rm(options.directory, { recursive: true, force: true });
  process.exit(130);
}

function resultsPage(report: string): string {
  const date = new Date().toISOString().slice(0, 10);
  return `# Benchmark results\n\nWritten by \`npm run bench -- --write\` on ${date}.\n\n${report}`;
}
