import { type Span, type SpanOptions, type TracerProvider, trace } from '@opentelemetry/api';
import { afterEach, expect, test } from 'vitest';
import { testId } from '../../test/support/fake-control.ts';
import { openHttpRig } from '../../test/support/http-rig.ts';

afterEach(() => trace.disable());

test('a request is one span, named for its route, with status, key and request id', async () => {
  const ended: { name: string; attributes: Record<string, unknown> }[] = [];
  trace.setGlobalTracerProvider(recordingProvider(ended));
  const rig = await openHttpRig();
  const response = await rig.request(`/v1/sandboxes/${testId('sandbox', 'zzz')}`);
  await response.text();
  await rig.server.close();

  expect(ended).toMatchObject([
    {
      name: 'GET /v1/sandboxes/:sandboxId',
      attributes: {
        'http.response.status_code': 404,
        'error.type': 'sandbox_not_found',
        'atoll.key_id': testId('key', 'a'),
        'atoll.request_id': response.headers.get('request-id'),
      },
    },
  ]);
  expect(JSON.stringify(ended)).not.toContain('atoll_a');
});

/** The least that the API takes for an SDK. */
function recordingProvider(ended: { name: string; attributes: Record<string, unknown> }[]): TracerProvider {
  const startSpan = (name: string, _options?: SpanOptions) => {
    const span = { name, attributes: {} as Record<string, unknown> };
    return {
      isRecording: () => true,
      updateName: (changed: string) => {
        span.name = changed;
      },
      setAttributes: (attributes: object) => Object.assign(span.attributes, attributes),
      setAttribute: (key: string, value: unknown) => Object.assign(span.attributes, { [key]: value }),
      setStatus: () => {},
      end: () => ended.push(span),
      spanContext: () => ({ traceId: '1'.repeat(32), spanId: '1'.repeat(16), traceFlags: 1 }),
    } as unknown as Span;
  };
  return { getTracer: () => ({ startSpan, startActiveSpan: () => undefined }) } as unknown as TracerProvider;
}
