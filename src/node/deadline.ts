/** A sandbox's end in boot time, which is what init holds: the wall clock may jump afterwards. */
import type { Clock } from '../base/index.ts';
import type { SandboxSettings } from '../protocol/index.ts';
import type { NodeRecord } from './node-record.ts';

/** At least 1, because 0 means never. */
export function deadlineOf(settings: SandboxSettings, clock: Clock): number {
  if (settings.expiresAtMs === null) return 0;
  return Math.max(1, clock.bootMs() + settings.expiresAtMs - clock.nowMs());
}

/** The same deadline stays what it was in boot time, whatever the wall clock did since. */
export function nextDeadline(record: NodeRecord, settings: SandboxSettings, clock: Clock): number {
  return settings.expiresAtMs === record.settings.expiresAtMs ? record.deadlineBootMs : deadlineOf(settings, clock);
}
