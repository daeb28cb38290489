/** A sandbox's end in boot time, which is what init holds: the wall clock may jump afterwards. */
import type { Clock } from '../base/index.ts';
import type { SandboxSettings } from '../protocol/index.ts';
import type { NodeRecord } from './node-record.ts';

/** At least 1, because 0 means never. */
export function deadlineOf(settings: SandboxSettings, clock: Clock): number {
  if (settings.expiresAtMs === null) return 0;
  return Math.max(1, clock.bootMs() + settings.expiresAtMs - clock.nowMs());
}

/** How long init waits beyond a deadline at which the node pauses the sandbox: when nobody has by then, it ends. */
const pauseGraceMs = 60_000;

/** What init is told. */
export function initDeadlineOf(record: Pick<NodeRecord, 'settings' | 'deadlineBootMs'>): number {
  const { settings, deadlineBootMs } = record;
  return deadlineBootMs !== 0 && settings.onExpiry === 'pause' ? deadlineBootMs + pauseGraceMs : deadlineBootMs;
}

/** None while it is paused. The same deadline stays what it was in boot time, whatever the wall clock did since. */
export function nextDeadline(record: NodeRecord, settings: SandboxSettings, clock: Clock): number {
  if (record.life.kind === 'paused') return 0;
  return settings.expiresAtMs === record.settings.expiresAtMs ? record.deadlineBootMs : deadlineOf(settings, clock);
}
