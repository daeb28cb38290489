/** What the kernel says about an ended process, as a shell would say it. */
import { constants } from 'node:os';

const signalNames = new Map(Object.entries(constants.signals).map(([name, number]) => [number, name]));
// Two names each; these are the ones shells print.
for (const name of ['SIGABRT', 'SIGIO', 'SIGCHLD', 'SIGSYS'] as const) signalNames.set(constants.signals[name], name);
const firstRealTimeSignal = 34;

export interface ProcessEnd {
  readonly exitCode: number;
  readonly signal: string | null;
}

export function parseWaitStatus(status: number): ProcessEnd {
  const number = status & 0x7f;
  if (number === 0) return { exitCode: (status >> 8) & 0xff, signal: null };
  return { exitCode: 128 + number, signal: signalName(number) };
}

function signalName(number: number): string {
  const name = signalNames.get(number);
  if (name !== undefined) return name;
  return number >= firstRealTimeSignal ? `SIGRTMIN+${number - firstRealTimeSignal}` : `SIG${number}`;
}
