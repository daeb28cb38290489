/**
 * How NodeApi stands on HTTP: `POST /v1/node/<method>` with JSON both ways. An exec carries bytes, so its bodies are a JSON header with
 * its length in front and the bytes behind it.
 */
import type { ErrorBody, ExecOutcome } from '../../protocol/index.ts';
import { isErrorCode, PlatformError } from '../../protocol/index.ts';

export const basePath = '/v1/node';
export const jsonType = 'application/json';
export const bytesType = 'application/octet-stream';
/** A line without content on a watch, so that a silent peer is known to be gone. */
export const heartbeatMs = 10_000;
export const watchSilenceMs = 45_000;

const lengthBytes = 4;

export interface ExecCall {
  readonly callId: string;
  readonly order: unknown;
  readonly stdin: Uint8Array | null;
}

export function packBytes(header: unknown, ...bytes: readonly Uint8Array[]): Buffer {
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.allocUnsafe(lengthBytes);
  length.writeUInt32LE(json.byteLength);
  return Buffer.concat([length, json, ...bytes]);
}

export function unpackBytes(body: Buffer): { readonly header: unknown; readonly bytes: Buffer } {
  const length = body.byteLength >= lengthBytes ? body.readUInt32LE(0) : Number.POSITIVE_INFINITY;
  const end = lengthBytes + length;
  if (end > body.byteLength) throw new PlatformError('invalid_request', 'The body is cut short.');
  return { header: parseJson(body.subarray(lengthBytes, end)), bytes: body.subarray(end) };
}

export async function readWhole(response: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return Buffer.concat(chunks);
}

export function base64Of(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
}

export function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString('utf8'));
  } catch (error) {
    throw new PlatformError('invalid_request', 'The body is not JSON.', { cause: error });
  }
}

export function packExecCall(callId: string, order: { readonly stdin: Uint8Array | null }): Buffer {
  const { stdin, ...rest } = order;
  return packBytes({ callId, order: rest, hasStdin: stdin !== null }, stdin ?? new Uint8Array());
}

export function unpackExecCall(body: Buffer): ExecCall {
  const { header, bytes } = unpackBytes(body);
  const { callId, order, hasStdin } = header as { callId?: unknown; order?: unknown; hasStdin?: unknown };
  if (typeof callId !== 'string' || callId.length > 100) throw new PlatformError('invalid_request', 'No call id.');
  return { callId, order, stdin: hasStdin === true ? bytes : null };
}

export function packOutcome(outcome: ExecOutcome): Buffer {
  const { stdout, stderr, ...rest } = outcome;
  return packBytes({ outcome: rest, stdoutBytes: stdout.byteLength }, stdout, stderr);
}

export function unpackOutcome(body: Buffer): ExecOutcome {
  const { header, bytes } = unpackBytes(body);
  const { outcome, stdoutBytes } = header as { outcome: Omit<ExecOutcome, 'stdout' | 'stderr'>; stdoutBytes: number };
  if (!Number.isInteger(stdoutBytes) || stdoutBytes < 0 || stdoutBytes > bytes.byteLength) {
    throw new PlatformError('outcome_unknown', "The node's answer is cut short.");
  }
  return { ...outcome, stdout: bytes.subarray(0, stdoutBytes), stderr: bytes.subarray(stdoutBytes) };
}

export function errorBodyOf(error: PlatformError): ErrorBody {
  const { code, message, details } = error;
  return { error: { code, message, details, requestId: error.requestId ?? '' } };
}

/** The refusal that a body carries, or `undefined` when it carries none. */
export function parseErrorBody(value: unknown): PlatformError | undefined {
  const error = (value as Partial<ErrorBody> | null)?.error;
  if (typeof error?.code !== 'string' || typeof error.message !== 'string') return undefined;
  const details = typeof error.details === 'object' && error.details !== null ? error.details : {};
  return new PlatformError(isErrorCode(error.code) ? error.code : 'internal', error.message, { details });
}
