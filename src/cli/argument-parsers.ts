/** Texts of the command line as values. Each refuses with an example of what it takes. */
import { InvalidArgumentError } from 'commander';
import { type Scope, type StateKind, scopes, stateKinds } from '../protocol/index.ts';

const unitMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** `500ms`, `30s`, `5m`, `2h`, `7d`, in milliseconds. */
export function parseDuration(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text);
  if (!match) throw new InvalidArgumentError('A time has a unit: 500ms, 30s, 5m, 2h, 7d.');
  return Math.round(Number(match[1]) * unitMs[match[2] as keyof typeof unitMs]);
}

export function parseDurationOrNever(text: string): number | null {
  return text === 'never' ? null : parseDuration(text);
}

const unitBytes = { k: 1024, m: 1024 ** 2, g: 1024 ** 3 } as const;

/** `512m`, `2g`, in bytes. */
export function parseSize(text: string): number {
  const match = /^(\d+(?:\.\d+)?)([kmg])(?:i?b)?$/i.exec(text);
  if (!match) throw new InvalidArgumentError('A size has a unit: 512m, 2g.');
  return Math.round(Number(match[1]) * unitBytes[match[2]!.toLowerCase() as keyof typeof unitBytes]);
}

export function parseCount(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('It is a whole number.');
  return Number(text);
}

export function parsePort(text: string): number {
  const port = Number(text);
  if (!/^[1-9]\d{0,4}$/.test(text) || port > 65_535) throw new InvalidArgumentError('A port is 1 to 65535.');
  return port;
}

/** Cores, `0.5` or `2`, as thousandths. */
export function parseCores(text: string): number {
  const cores = Number(text);
  if (!(cores > 0) || !Number.isFinite(cores)) throw new InvalidArgumentError('It is a number of cores: 0.5, 2.');
  return Math.round(cores * 1_000);
}

/** Repeated: `--env A=1 --env B=2`. */
export function collectPair(text: string, earlier: Readonly<Record<string, string>> = {}): Record<string, string> {
  const equalsAt = text.indexOf('=');
  if (equalsAt < 1) throw new InvalidArgumentError('It is NAME=VALUE.');
  return { ...earlier, [text.slice(0, equalsAt)]: text.slice(equalsAt + 1) };
}

export function collectText(text: string, earlier: readonly string[] = []): string[] {
  return [...earlier, text];
}

export function collectScope(text: string, earlier: readonly Scope[] = []): Scope[] {
  return [...earlier, oneOf(scopes, text)];
}

export function collectState(text: string, earlier: readonly StateKind[] = []): StateKind[] {
  return [...earlier, oneOf(stateKinds, text)];
}

function oneOf<Choice extends string>(choices: readonly Choice[], text: string): Choice {
  const found = choices.find((choice) => choice === text);
  if (found === undefined) throw new InvalidArgumentError(`It is one of ${choices.join(', ')}.`);
  return found;
}
