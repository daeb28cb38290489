/**
 * Which port of which sandbox a request is for: by host name, `{port}-{sandbox}.{domain}`, or, where the host name is not such a one, by the headers
 * `E2b-Sandbox-Id` and `E2b-Sandbox-Port`.
 */
import type { IncomingMessage } from 'node:http';
import { isId, type SandboxId } from '../../protocol/index.ts';
import type { PreviewAddress, PreviewAddresses } from '../previews/preview-addresses.ts';
import { E2bError } from './e2b-error.ts';

const idHeader = 'e2b-sandbox-id';
const portHeader = 'e2b-sandbox-port';

export interface EdgeAddress extends PreviewAddress {
  /** By headers it can be nothing else; by host name it may be a preview of the platform's own. */
  readonly isByHeaders: boolean;
}

/** Undefined: it is for no sandbox. Refuses headers that are half there or make no sense. */
export function findEdgeAddress(request: IncomingMessage, addresses: PreviewAddresses): EdgeAddress | undefined {
  const preview = addresses.find(request);
  if (preview !== undefined) return preview.mode === 'host' ? { ...preview, isByHeaders: false } : undefined;
  const id = request.headers[idHeader];
  const portText = request.headers[portHeader];
  if (id === undefined && portText === undefined) return undefined;
  if (typeof id !== 'string' || typeof portText !== 'string') {
    throw new E2bError(400, `missing header: both ${idHeader} and ${portHeader} are needed.`);
  }
  const port = /^[1-9]\d{0,4}$/.test(portText) ? Number(portText) : 0;
  if (port < 1 || port > 65_535) throw new E2bError(400, `"${portText.slice(0, 20)}" is no port.`);
  return { sandboxId: sandboxIdIn(id), port, mode: 'host', prefix: '', target: request.url ?? '/', isByHeaders: true };
}

/** An id, or one with what older clients put behind a dash. */
export function sandboxIdIn(text: string): SandboxId {
  const id = text.split('-')[0]!;
  if (isId('sandbox', id)) return id;
  // A name that can be nobody's is as absent as one that is nobody's.
  return id.replaceAll(/[^a-z0-9]/g, '').slice(0, 40) as SandboxId;
}
