/** Signed addresses of files: whoever has one may read or write one path, until it expires. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { SandboxId } from '../../../protocol/index.ts';
import type { EnvdTokens } from '../envd-tokens.ts';
import { EnvdError } from './envd-error.ts';

export interface Signed {
  readonly path: string;
  readonly operation: 'read' | 'write';
  readonly user: string;
  readonly expiration: string | null;
}

export function signatureOf({ path, operation, user, expiration }: Signed, token: string): string {
  const parts = [path, operation, user, token, ...(expiration === null ? [] : [expiration])];
  const digest = createHash('sha256').update(parts.join(':')).digest('base64');
  return `v1_${digest.replace(/=+$/, '')}`;
}

/** Refuses a request for a file that has neither the token nor a good signature. A wrong token is not made good by a signature. */
export function checkFileAccess(
  about: { readonly method: string; readonly query: URLSearchParams; readonly header: string | undefined },
  access: { readonly sandboxId: SandboxId; readonly tokens: EnvdTokens; readonly nowMs: number },
): void {
  const { sandboxId, tokens, nowMs } = access;
  if (about.header !== undefined) {
    if (tokens.verifyEnvdAccess(sandboxId, about.header)) return;
    throw new EnvdError('unauthenticated', 'access token present in header but does not match');
  }
  const signature = about.query.get('signature');
  if (signature === null) throw new EnvdError('unauthenticated', 'missing signature query parameter');
  const signed = signedIn(about);
  if (!isSignedWith(signature, signed, tokens.envdTokenOf(sandboxId))) {
    throw new EnvdError('unauthenticated', 'invalid signature');
  }
  if (signed.expiration !== null && Number(signed.expiration) * 1_000 < nowMs) {
    throw new EnvdError('unauthenticated', 'signature is already expired');
  }
}

/** The sandbox that a signed address is of, where the address itself does not say; also of one that has expired. */
export function sandboxOfSignature(
  about: { readonly method: string; readonly query: URLSearchParams },
  tokens: EnvdTokens,
): SandboxId | undefined {
  const signature = about.query.get('signature');
  if (signature === null) return undefined;
  const signed = signedIn(about);
  return tokens.recent().find((sandboxId) => isSignedWith(signature, signed, tokens.envdTokenOf(sandboxId)));
}

function signedIn({ method, query }: { readonly method: string; readonly query: URLSearchParams }): Signed {
  return {
    path: query.get('path') ?? '',
    operation: method === 'GET' || method === 'HEAD' ? 'read' : 'write',
    user: query.get('username') ?? '',
    expiration: query.get('signature_expiration'),
  };
}

function isSignedWith(signature: string, signed: Signed, token: string): boolean {
  const expected = Buffer.from(signatureOf(signed, token));
  const given = Buffer.from(signature);
  return given.byteLength === expected.byteLength && timingSafeEqual(given, expected);
}
