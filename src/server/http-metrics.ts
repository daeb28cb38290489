/** Counts requests by route and status, and writes metrics as Prometheus reads them. */
import type { Metric } from './control-port.ts';

interface RouteCount {
  readonly route: string;
  readonly status: number;
  requests: number;
  seconds: number;
}

export class HttpMetrics {
  /** By route and status: bounded by the number of routes, because unknown paths count as one. */
  readonly #counts = new Map<string, RouteCount>();

  count(request: { readonly route: string; readonly status: number; readonly ms: number }): void {
    const key = `${request.route} ${request.status}`;
    let count = this.#counts.get(key);
    if (count === undefined) {
      count = { route: request.route, status: request.status, requests: 0, seconds: 0 };
      this.#counts.set(key, count);
    }
    count.requests++;
    count.seconds += request.ms / 1_000;
  }

  metrics(running: number): readonly Metric[] {
    const counts = [...this.#counts.values()];
    const samples = (value: (count: RouteCount) => number) =>
      counts.map((count) => ({ labels: { route: count.route, status: String(count.status) }, value: value(count) }));
    return [
      {
        name: 'atoll_http_requests_total',
        help: 'Requests answered.',
        type: 'counter',
        samples: samples((count) => count.requests),
      },
      {
        name: 'atoll_http_request_seconds_total',
        help: 'Time spent on them, the waiting for commands included.',
        type: 'counter',
        samples: samples((count) => count.seconds),
      },
      {
        name: 'atoll_http_requests_running',
        help: 'Requests not answered yet.',
        type: 'gauge',
        samples: [{ labels: {}, value: running }],
      },
    ];
  }
}

export const metricsContentType = 'text/plain; version=0.0.4; charset=utf-8';

export function formatMetrics(metrics: readonly Metric[]): string {
  return metrics.map(formatMetric).join('');
}

function formatMetric({ name, help, type, samples }: Metric): string {
  const lines = samples.map(({ labels, value }) => `${name}${formatLabels(labels)} ${formatValue(value)}\n`);
  return `# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}\n# TYPE ${name} ${type}\n${lines.join('')}`;
}

function formatLabels(labels: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(labels).map(([name, value]) => {
    const text = value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
    return `${name}="${text}"`;
  });
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

function formatValue(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  return Number.isFinite(value) ? String(value) : value > 0 ? '+Inf' : '-Inf';
}
