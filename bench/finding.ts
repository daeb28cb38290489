/** What a row found: one line of the table. Every figure stands beside the peer or the limit that it is judged by. */
import { type Summary, summarize } from './statistics.ts';

export type Unit = 'ms' | 's' | '/s' | 'MiB';
export type Verdict = 'met' | 'missed' | 'shown' | 'not installed' | 'failed';

export interface Finding {
  readonly what: string;
  readonly measured: string;
  readonly against: string;
  readonly ratio: number | undefined;
  /** Of the ratio. */
  readonly limit: string;
  readonly verdict: Verdict;
  /** What explains the figure, a line each. */
  readonly notes: readonly string[];
}

export interface Figure {
  readonly name: string;
  readonly summary: Summary;
  readonly unit: Unit;
}

export function figure(name: string, samples: readonly number[], unit: Unit = 'ms'): Figure {
  return { name, summary: summarize(samples), unit };
}

interface Extra {
  readonly notes?: readonly string[];
}

/** Ours against a peer measured in the same run: the ratio of the medians. `atMost` absent: shown, not judged. */
export function againstPeer(ours: Figure, peer: Figure, options: Extra & { readonly atMost?: number } = {}): Finding {
  const ratio = ours.summary.p50 / peer.summary.p50;
  return {
    what: ours.name,
    measured: show(ours),
    against: `${peer.name}: ${show(peer)}`,
    ratio,
    limit: options.atMost === undefined ? '' : `≤ ${options.atMost}×`,
    verdict: options.atMost === undefined ? 'shown' : ratio <= options.atMost ? 'met' : 'missed',
    notes: options.notes ?? [],
  };
}

/** Ours against a fixed limit; the median counts. */
export function againstLimit(
  ours: Figure,
  limit: { readonly atMost: number } | { readonly atLeast: number },
  options: Extra = {},
): Finding {
  const bound = 'atMost' in limit ? limit.atMost : limit.atLeast;
  const met = 'atMost' in limit ? ours.summary.p50 <= bound : ours.summary.p50 >= bound;
  return {
    what: ours.name,
    measured: show(ours),
    against: 'the limit',
    ratio: ours.summary.p50 / bound,
    limit: `${'atMost' in limit ? '≤' : '≥'} ${formatValue(bound, ours.unit)}`,
    verdict: met ? 'met' : 'missed',
    notes: options.notes ?? [],
  };
}

export function shownOnly(ours: Figure, options: Extra = {}): Finding {
  const nothing = { against: '', ratio: undefined, limit: '' };
  return { what: ours.name, measured: show(ours), ...nothing, verdict: 'shown', notes: options.notes ?? [] };
}

export function notMeasured(what: string, verdict: 'not installed' | 'failed', note?: string): Finding {
  const nothing = { measured: '', against: '', ratio: undefined, limit: '' };
  return { what, ...nothing, verdict, notes: note === undefined ? [] : [note] };
}

/** The first line; the whole of it is on stderr. */
export function failed(what: string, error: unknown): Finding {
  const [reason] = (error instanceof Error ? error.message : String(error)).split('\n');
  return notMeasured(what, 'failed', reason);
}

/** "1.31 ms (p99 2.70, n=400)" */
export function show({ summary, unit }: Figure): string {
  const { p50, p99, count } = summary;
  const p99Shown = count >= 20 ? `p99 ${formatNumber(p99)}, ` : '';
  return `${formatValue(p50, unit)} (${p99Shown}n=${count})`;
}

export function formatValue(value: number, unit: Unit): string {
  return unit === '/s' ? `${formatNumber(value)}/s` : `${formatNumber(value)} ${unit}`;
}

/** Three digits are more than the noise allows. */
export function formatNumber(value: number): string {
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}
