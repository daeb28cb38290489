/**
 * Structured log: one JSON object per line, `time`, `level`, `msg`, then the fields. It goes to the stream it is given.
 *
 * Invariants:
 *  - A line never holds a secret that `redact` knows, whether as a named field or inside a text.
 *  - Logging never throws and never writes more than one line per call.
 */
import { type Clock, SystemClock } from './clock.ts';
import { redact } from './redact.ts';

const levels = { debug: 10, info: 20, warn: 30, error: 40 } as const;
export type LogLevel = keyof typeof levels;
export type LogFields = Readonly<Record<string, unknown>>;

export interface Logger {
  debug(msg: string, fields?: LogFields): void;
  info(msg: string, fields?: LogFields): void;
  warn(msg: string, fields?: LogFields): void;
  error(msg: string, fields?: LogFields): void;
  /** One that adds these fields to every line. */
  child(fields: LogFields): Logger;
}

export interface LoggerOptions {
  readonly stream: { write(line: string): unknown };
  /** Lines below it are not written. */
  readonly level?: LogLevel;
  readonly clock?: Pick<Clock, 'nowMs'>;
  readonly fields?: LogFields;
}

export function createLogger(options: LoggerOptions): Logger {
  const { stream, level: lowest = 'info', clock = new SystemClock(), fields: own = {} } = options;

  const write =
    (level: LogLevel) =>
    (msg: string, fields: LogFields = {}) => {
      if (levels[level] < levels[lowest]) return;
      const time = new Date(clock.nowMs()).toISOString();
      // The head goes in twice: first for the order, last so that no field of the same name replaces it.
      const head = { time, level, msg: redact(msg) };
      stream.write(`${JSON.stringify({ ...head, ...redactFields(own, fields), ...head })}\n`);
    };

  return {
    debug: write('debug'),
    info: write('info'),
    warn: write('warn'),
    error: write('error'),
    child: (fields) => createLogger({ ...options, clock, fields: { ...own, ...fields } }),
  };
}

/** For parts that are used without a log: it does not even look at what it is given. */
export const silentLogger: Logger = {
  debug: () => {},
  info: () => {},
  warn: () => {},
  error: () => {},
  child: () => silentLogger,
};

/** Copies before it merges: reading a field may throw. */
function redactFields(...layers: readonly LogFields[]): LogFields {
  const copies = redact(layers) as (object | string)[];
  return Object.assign({}, ...copies.map((copy) => (typeof copy === 'string' ? { fields: copy } : copy)));
}
