/** The body of a request as JSON: read up to a limit, as UTF-8, without what no field may hold. */
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { PlatformError } from '../protocol/index.ts';
import { invalidRequest } from './invalid-request.ts';

/** Bytes for a command's standard input: the only text in which a NUL is one like any other. */
const fieldsThatTakeNul: ReadonlySet<string> = new Set(['stdin']);

/** For receiving one body whole. */
const bodyTimeoutMs = 300_000;

/** An absent body is `{}`: a route without required fields needs none. */
export async function readJsonBody(request: IncomingMessage, limitBytes: number): Promise<unknown> {
  const bytes = await readBytes(request, limitBytes);
  if (bytes.byteLength === 0) return {};
  if (!isUtf8(bytes)) throw invalidBody('It is not UTF-8.');
  const text = bytes.toString('utf8');
  const value = parseJson(text, request.headers['content-type']);
  // Only a text that contains one of these can hide one; most bodies are not walked.
  if (text.includes('\\u0000') || text.includes('__proto__')) refuseHidden(value);
  return value;
}

function parseJson(text: string, contentType: string | undefined): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const isJson = contentType === undefined || /[/+]json\b/i.test(contentType);
    const hint = isJson ? '' : ` This API takes JSON; the content type says ${contentType.slice(0, 100)}.`;
    throw invalidBody(`It is not JSON: ${(error as Error).message.slice(0, 200)}.${hint}`);
  }
}

async function readBytes(request: IncomingMessage, limitBytes: number): Promise<Buffer> {
  const declared = request.headers['content-length'];
  if (declared === undefined && request.headers['transfer-encoding'] === undefined) return Buffer.alloc(0);
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') {
    throw invalidBody(`Content-Encoding ${encoding.slice(0, 50)} is not understood; send it as it is.`);
  }
  if (Number(declared ?? 0) > limitBytes) throw tooLarge(limitBytes);
  return arrived(request, limitBytes) ?? (await collect(request, limitBytes));
}

/** A body that came whole with its headers, as small ones do, is there to be taken: no listener, timer or turn of the loop is needed. */
function arrived(request: IncomingMessage, limitBytes: number): Buffer | undefined {
  if (!request.complete || request.errored || request.readableLength > limitBytes) return undefined;
  return (request.read() as Buffer | null) ?? undefined;
}

function collect(request: IncomingMessage, limitBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  const late = setTimeout(() => request.destroy(new Error('The body took too long.')), bodyTimeoutMs);
  request.once('close', () => clearTimeout(late));
  request.once('end', () => clearTimeout(late));
  return new Promise((resolve, reject) => {
    request.on('data', (chunk: Buffer) => {
      size += chunk.byteLength;
      if (size <= limitBytes) {
        chunks.push(chunk);
        return;
      }
      // What is left is read and dropped, so that the caller, who is still sending, gets to read the answer.
      request.removeAllListeners('data');
      request.resume();
      chunks.length = 0;
      reject(tooLarge(limitBytes));
    });
    request.on('end', () => resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)));
    request.on('error', (error) =>
      reject(new PlatformError('invalid_request', 'The body broke off.', { cause: error })),
    );
  });
}

function refuseHidden(value: unknown): void {
  // A list of what is still to be looked at, not recursion: the depth is the caller's choice.
  const left: { readonly path: string; readonly value: unknown }[] = [{ path: '', value }];
  for (let item = left.pop(); item !== undefined; item = left.pop()) {
    const { path, value: found } = item;
    if (typeof found === 'string') {
      if (found.includes('\0') && !fieldsThatTakeNul.has(path)) {
        throw invalidRequest([{ in: 'body', path: shown(path), message: 'A NUL byte is not allowed.' }]);
      }
    } else if (typeof found === 'object' && found !== null) {
      for (const [name, inner] of Object.entries(found)) {
        const innerPath = path === '' ? name : `${path}.${name}`;
        if (name === '__proto__' || name.includes('\0')) {
          throw invalidRequest([{ in: 'body', path: shown(innerPath), message: 'A field cannot have this name.' }]);
        }
        left.push({ path: innerPath.slice(0, 1_000), value: inner });
      }
    }
  }
}

function shown(path: string): string {
  return path.replaceAll('\0', '\\0').slice(0, 200);
}

function invalidBody(message: string): PlatformError {
  return invalidRequest([{ in: 'body', path: '', message }]);
}

function tooLarge(limitBytes: number): PlatformError {
  return new PlatformError('payload_too_large', `This route takes at most ${limitBytes} bytes in its body.`, {
    details: { limitBytes },
  });
}
