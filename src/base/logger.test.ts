import { expect, test } from 'vitest';
import { createLogger, type LogLevel, silentLogger } from './logger.ts';

function makeLogger(level?: LogLevel) {
  const lines: string[] = [];
  const stream = { write: (line: string) => lines.push(line) };
  const logger = createLogger({ stream, clock: { nowMs: () => 0 }, ...(level && { level }) });
  return { logger, lines, parsed: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>) };
}

test('a line is one JSON object with time, level, message and fields', () => {
  const { logger, lines } = makeLogger();
  logger.info('started\nnow', { port: 80 });
  expect(lines).toEqual(['{"time":"1970-01-01T00:00:00.000Z","level":"info","msg":"started\\nnow","port":80}\n']);
});

test('lines below the level are not written', () => {
  const { logger, parsed } = makeLogger('warn');
  logger.debug('a');
  logger.info('b');
  logger.warn('c');
  logger.error('d');
  expect(parsed().map((line) => line['msg'])).toEqual(['c', 'd']);
});

test('a child adds its fields to every line; nearer ones win, and none replaces the head', () => {
  const { logger, parsed } = makeLogger();
  const child = logger.child({ requestId: 'r', part: 'a' }).child({ part: 'b' });
  child.info('x', { level: 'none', msg: 'none', time: 'none' });
  expect(parsed()[0]).toEqual({ time: '1970-01-01T00:00:00.000Z', level: 'info', msg: 'x', requestId: 'r', part: 'b' });
});

test('secrets reach no line, whether by name, in an environment or inside a text', () => {
  const { logger, lines } = makeLogger();
  const key = `atoll_${'5ec4e7'.repeat(7)}`;
  logger.info(`with ${key}`, {
    key: '5ec4e7',
    'x-api-key': '5ec4e7',
    headers: [{ Authorization: 'Bearer 5ec4e7' }],
    nested: { accessToken: '5ec4e7', password: ['5ec4e7'], secret: { is: '5ec4e7' } },
    env: { NAME: '5ec4e7' },
    url: `https://x/?k=e2b_${'5ec4e7'.repeat(7)}&y`,
    [key]: 1,
    err: new Error(`bad ${key}`, { cause: { token: '5ec4e7' } }),
  });
  const line = lines.join('');
  expect(line).not.toContain('5ec4e7');
  expect(line).toContain('"NAME":"[redacted]"');
  expect(line).toContain('?k=e2b_[redacted]&y');
});

test('what only resembles a secret stays', () => {
  const { logger, parsed } = makeLogger();
  const fields = { keyId: 'key1', leaseToken: 7, tokens: ['a'], idempotencyKey: 'i', monkey: 'm', secret: null };
  logger.info('x', fields);
  expect(parsed()[0]).toMatchObject(fields);
});

test('an error keeps name, message, code, stack and cause', () => {
  const { logger, parsed } = makeLogger();
  logger.error('x', { err: Object.assign(new TypeError('outer', { cause: new Error('inner') }), { code: 'E1' }) });
  const stack = expect.stringContaining('logger.test');
  const cause = { name: 'Error', message: 'inner', stack };
  expect(parsed()[0]?.['err']).toEqual({ name: 'TypeError', message: 'outer', code: 'E1', stack, cause });
});

test('nothing that is logged can throw or grow without bound', () => {
  const { logger, lines, parsed } = makeLogger();
  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  const bytes = new Uint8Array(5);
  const thrower = {
    get a() {
      throw new Error('getter');
    },
  };
  logger.info('x', {
    circular,
    big: 1n,
    f: () => 1,
    bytes,
    invalid: new Date(Number.NaN),
    map: new Map([['token', 'x']]),
  });
  logger.info('x', { thrower });
  logger.info('x'.repeat(1_000_000), { many: new Array(100_000).fill('y') });
  expect(parsed()[0]).toMatchObject({
    circular: { self: '[circular]' },
    big: '1',
    f: '[function]',
    bytes: '[5 bytes]',
    map: { token: '[redacted]' },
  });
  expect(lines).toHaveLength(3);
  expect(lines[1]).toContain('unloggable: getter');
  expect(lines[2]!.length).toBeLessThan(20_000);
  silentLogger.child({ a: 1 }).error('x');
});
