/**
 * Fault points that do something: for tests of what a crash, a failure or a pause at one place leaves behind. A real
 * process takes its script as text, "after-journal-operation=crash,store-before-commit=delay:50"; a test in the same
 * process holds a point until it has looked. "a>b=crash" waits with b until a was hit: for a point that everybody passes.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { assertNever } from './assert.ts';
import type { FaultPoints } from './fault-points.ts';

export type FaultAction =
  | { readonly kind: 'crash' }
  | { readonly kind: 'error'; readonly error: Error }
  | { readonly kind: 'delay'; readonly delayMs: number };

/** One point that is held: whoever hits it waits until it is opened. */
export interface Gate {
  /** Settles when the point is first hit. */
  readonly reached: Promise<void>;
  open(): void;
}

export class ScriptedFaults implements FaultPoints {
  readonly #actions: Map<string, FaultAction>;
  /** By the point that puts them in place. */
  readonly #later = new Map<string, readonly [string, FaultAction]>();
  readonly #gates = new Map<string, { reached: () => void; opened: Promise<void> }>();

  constructor(actions: Iterable<readonly [string, FaultAction]> = []) {
    this.#actions = new Map(actions);
  }

  async hit(name: string): Promise<void> {
    const gate = this.#gates.get(name);
    if (gate) {
      gate.reached();
      await gate.opened;
    }
    const action = this.#actions.get(name);
    const later = this.#later.get(name);
    if (later) this.set(...later);
    if (action) await act(action);
  }

  set(name: string, action: FaultAction): void {
    this.#actions.set(name, action);
  }

  /** From the next hit of `point` on. */
  setAfter(point: string, name: string, action: FaultAction): void {
    this.#later.set(point, [name, action]);
  }

  clear(name: string): void {
    this.#actions.delete(name);
  }

  /** Everybody who hits the point from now on waits for `open`, and nobody after it. */
  hold(name: string): Gate {
    if (this.#gates.has(name)) throw new Error(`The fault point "${name}" is held already.`);
    const reached = Promise.withResolvers<void>();
    const opened = Promise.withResolvers<void>();
    this.#gates.set(name, { reached: reached.resolve, opened: opened.promise });
    const open = () => {
      this.#gates.delete(name);
      opened.resolve();
    };
    return { reached: reached.promise, open };
  }
}

/** Refuses what it does not understand: a test with a misspelt script would pass for nothing. */
export function parseFaults(text: string): ScriptedFaults {
  const faults = new ScriptedFaults();
  for (const entry of text.split(',').map((entry) => entry.trim())) if (entry !== '') addEntry(faults, entry);
  return faults;
}

const entryPattern =
  /^(?:(?<point>[a-z0-9-]+)>)?(?<name>[a-z0-9-]+)=(?:(?<crash>crash)|(?<error>error)|delay:(?<delayMs>\d{1,6}))$/;

function addEntry(faults: ScriptedFaults, entry: string): void {
  const { point, name, crash, error, delayMs } = entryPattern.exec(entry)?.groups ?? {};
  if (!name) throw new Error(`"${entry}" is not a fault: write name=crash, name=error or name=delay:<ms>.`);
  const failure = new Error(`The fault point "${name}" fails as it was told.`);
  const action: FaultAction = crash
    ? { kind: 'crash' }
    : error
      ? { kind: 'error', error: failure }
      : { kind: 'delay', delayMs: Number(delayMs) };
  if (point) faults.setAfter(point, name, action);
  else faults.set(name, action);
}

async function act(action: FaultAction): Promise<void> {
  switch (action.kind) {
    case 'crash':
      process.kill(process.pid, 'SIGKILL');
      return new Promise(() => {}); // The signal may take a moment; nothing after this point may run.
    case 'error':
      throw action.error;
    case 'delay':
      return delay(action.delayMs);
    default:
      assertNever(action);
  }
}
