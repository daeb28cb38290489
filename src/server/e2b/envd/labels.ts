/** Metadata of an upload: headers `X-Metadata-<key>`, kept with the file. */
import type { IncomingHttpHeaders } from 'node:http';
import { EnvdError } from './envd-error.ts';

const prefix = 'x-metadata-';
export const labelPrefix = 'user.e2b.';
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
    total += labelPrefix.length + key.length + text.length;
    labels[key] = text;
  }
  if (total > totalMaxBytes) throw new EnvdError('invalid_argument', `metadata has more than ${totalMaxBytes} bytes`);
  return labels;
}
