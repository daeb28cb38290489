/** Tells a request that never left from one whose answer was lost, where the platform says so (Node does, browsers do not). */

const neverSentCodes: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EADDRNOTAVAIL',
  'UND_ERR_CONNECT_TIMEOUT',
  'CERT_HAS_EXPIRED',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'ERR_TLS_CERT_ALTNAME_INVALID',
]);

export function isNeverSent(error: unknown): boolean {
  if (typeof error !== 'object' || error === null) return false;
  const { code, syscall, cause, errors } = error as Record<'code' | 'syscall' | 'cause' | 'errors', unknown>;
  // Several addresses were tried: each of them must have refused.
  if (Array.isArray(errors) && errors.length > 0) return errors.every(isNeverSent);
  return neverSentCodes.has(code) || syscall === 'connect' || isNeverSent(cause);
}
