/**
 * Random changes against a model while the real server and node are killed, for as long as asked.
 *
 *   npm run soak -- --minutes 10            a new seed, printed
 *   npm run soak -- --minutes 10 --seed 42  the same choices again
 *
 * Ends with 1 if anything was violated.
 */
import { randomInt } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { runSchedule, type ScheduleReport } from '../test/support/crash-schedule.ts';

const { values } = parseArgs({ options: { minutes: { type: 'string' }, seed: { type: 'string' } } });
const minutes = numberOf('minutes', values.minutes ?? '10');
const seed = numberOf('seed', values.seed ?? String(randomInt(2 ** 31)));

say(`seed ${seed}, ${minutes} minutes`);
const layers = await mkdtemp(join(tmpdir(), 'atoll-layers-'));
process.env['ATOLL_LAYERS'] = layers;
try {
  const report = await runSchedule({ seed, durationMs: minutes * 60_000, say });
  tell(report);
  process.exitCode = report.violations.length === 0 ? 0 : 1;
} finally {
  await rm(layers, { recursive: true, force: true });
}

function tell(report: ScheduleReport): void {
  const { operations, kills, doubts, violations } = report;
  for (const [kind, count] of Object.entries(operations).sort()) say(`  ${kind}: ${count}`);
  const total = Object.values(operations).reduce((sum, count) => sum + count, 0);
  for (const violation of violations) say(`violation: ${violation}`);
  say(
    `${total} operations (${doubts} in doubt), ${kills.server + kills.node} kills (server ${kills.server}, node ${kills.node}), ${violations.length} violations, seed ${report.seed}`,
  );
}

function numberOf(name: string, text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value >= 0) return value;
  throw new Error(`--${name} takes a number, not "${text}".`);
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}
