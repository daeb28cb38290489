/** Metadata of an upload: headers `X-Metadata-<key>`, kept with the file as labels of their own prefix. */
import type { IncomingHttpHeaders } from 'node:http';
import { EnvdError } from './envd-error.ts';

const prefix = 'x-metadata-';
/** Of their names as labels; in the file system these begin with `user.` too. */
export const labelPrefix = 'e2b.';
const storedPrefix = `user.${labelPrefix}`;
const keyMaxBytes = 246;
const totalMaxBytes = 4_096;

export function labelsIn(headers: IncomingHttpHeaders): Record<string, string> {
  const labels: Record<string, string> = {};
  let total = 0;
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(prefix)) continue;
    const key = name.slice(prefix.length);
    const text = Array.isArray(value) ? value.join(', ') : (value ?? '');
    if (key === '' || key.length > keyMaxBytes || !/^[\x20-\x7e]*$/.test(text)) {
      throw new EnvdError(
        'invalid_argument',
        `metadata '${key.slice(0, 100)}' is not 1 to ${keyMaxBytes} printable characters with a printable value`,
      );
    }
    total += storedPrefix.length + key.length + text.length;
    labels[key] = text;
  }
  if (total > totalMaxBytes) throw new EnvdError('invalid_argument', `metadata has more than ${totalMaxBytes} bytes`);
  return labels;
}

export function prefixed(labels: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(labels).map(([key, value]) => [`${labelPrefix}${key}`, value]));
}

/** Also those that were set by other means. */
export function unprefixed(labels: Readonly<Record<string, string>>): Record<string, string> {
  const ours = Object.entries(labels).filter(([name]) => name.startsWith(labelPrefix));
  return Object.fromEntries(ours.map(([name, value]) => [name.slice(labelPrefix.length), value]));
}
