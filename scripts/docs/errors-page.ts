import type { ErrorSpec } from '../../src/protocol/index.ts';
import { code, generatedNote, page, table } from './markdown.ts';

const retryMeanings: Record<ErrorSpec['retry'], string> = {
  never: 'The same request would be refused again.',
  backoff: 'Nothing was changed; the same request may pass later.',
  unknown: 'It may or may not have taken effect: repeat it under the same idempotency key, or look first.',
};

export function renderErrorsPage(catalog: Readonly<Record<string, ErrorSpec>>): string {
  const rows = Object.entries(catalog).map(([name, spec]) => [
    code(name),
    String(spec.status),
    spec.retry,
    spec.meaning,
  ]);
  return page([
    generatedNote,
    '# Errors',
    'Every refusal has this body. Branch on `code`: it keeps its meaning in later versions, while messages may change.',
    '```json\n{ "error": { "code": "sandbox_not_found", "message": "…", "details": {}, "requestId": "…" } }\n```',
    'A command that fails, is killed or times out is no error: its result says so.',
    table(['code', 'status', 'retry', 'meaning'], rows),
    '## What `retry` says',
    table(['retry', 'means'], Object.entries(retryMeanings)),
  ]);
}
