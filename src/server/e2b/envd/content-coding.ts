/** Codings of a body: plain or gzip, in either direction. */
import type { IncomingMessage } from 'node:http';
import { createGunzip } from 'node:zlib';
import { through } from '../../../base/index.ts';
import { EnvdError } from './envd-error.ts';

/** Plain, unless the client asks for gzip and nothing else or refuses what is plain. */
export function codingOf(header: string | string[] | undefined): 'identity' | 'gzip' | undefined {
  const codings = new Map(
    String(header ?? '')
      .split(',')
      .map((part) =>
        part
          .trim()
          .toLowerCase()
          .split(/\s*;\s*q=/),
      )
      .filter(([name]) => name !== '')
      .map(([name, weight = '1']) => [name!, Number(weight)] as const),
  );
  const takes = (name: string) => (codings.get(name) ?? codings.get('*') ?? (name === 'identity' ? 1 : 0)) > 0;
  if (takes('gzip') && (codings.size === 1 || !takes('identity')))
    return codings.has('gzip') || !takes('identity') ? 'gzip' : 'identity';
  return takes('identity') ? 'identity' : undefined;
}

/** Nothing is begun before somebody reads: what fails without a reader would end the server. */
export function decoded(request: IncomingMessage): AsyncIterable<Uint8Array> {
  const coding = request.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (coding === 'identity') return request;
  if (coding !== 'gzip')
    throw new EnvdError('invalid_argument', `unsupported Content-Encoding: ${coding.slice(0, 50)}`);
  return unpacked(request);
}

async function* unpacked(request: IncomingMessage): AsyncGenerator<Uint8Array, void> {
  try {
    // A reader that stops early still answers on the same connection.
    yield* through(request.iterator({ destroyOnReturn: false }), createGunzip());
  } catch (error) {
    const isBad = String((error as NodeJS.ErrnoException).code ?? '').startsWith('Z_');
    throw isBad ? new EnvdError('invalid_argument', 'The body is not gzip.') : error;
  }
}
