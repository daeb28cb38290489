/** Codings of a body: plain or gzip, in either direction. */
import type { IncomingMessage } from 'node:http';
import { createGunzip } from 'node:zlib';
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

export function decoded(request: IncomingMessage): AsyncIterable<Uint8Array> {
  const coding = request.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (coding === 'identity') return request;
  if (coding !== 'gzip')
    throw new EnvdError('invalid_argument', `unsupported Content-Encoding: ${coding.slice(0, 50)}`);
  const plain = createGunzip();
  request.on('error', (error) => plain.destroy(error));
  return unpacked(request.pipe(plain));
}

async function* unpacked(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void> {
  try {
    yield* source;
  } catch (error) {
    const isBad = String((error as NodeJS.ErrnoException).code ?? '').startsWith('Z_');
    throw isBad ? new EnvdError('invalid_argument', 'The body is not gzip.') : error;
  }
}
