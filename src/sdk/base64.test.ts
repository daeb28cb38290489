import { afterEach, expect, test, vi } from 'vitest';
import { decodeBase64, encodeBase64 } from './base64.ts';

const bytes = Uint8Array.from({ length: 20_000 }, (_, i) => (i * 7) % 256);

afterEach(() => vi.unstubAllGlobals());

test('bytes come back as they were, with the new methods and without them', () => {
  const text = encodeBase64(bytes);
  expect(decodeBase64(text)).toEqual(bytes);
  expect(decodeBase64('')).toEqual(new Uint8Array(0));

  const older = Uint8Array.from(bytes) as Uint8Array & { toBase64?: unknown };
  older.toBase64 = undefined;
  expect(encodeBase64(older)).toBe(text);
  vi.stubGlobal(
    'Uint8Array',
    class extends Uint8Array {
      static fromBase64 = undefined;
    },
  );
  expect([...decodeBase64(text)]).toEqual([...bytes]);
});
