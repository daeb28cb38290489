/** One OpenTelemetry span per request. Without an SDK in the process it costs next to nothing and goes nowhere. */
import { context, propagation, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import type { Exchange } from './exchange.ts';

export class RequestSpans {
  readonly #tracer = trace.getTracer('atoll-server');

  async run(exchange: Exchange, work: () => Promise<void>): Promise<void> {
    const { request, response, method, path } = exchange;
    const parent = propagation.extract(context.active(), request.headers);
    const span = this.#tracer.startSpan(method, { kind: SpanKind.SERVER }, parent);
    if (!span.isRecording()) return await work();
    response.once('close', () => {
      span.updateName(`${method} ${exchange.routePath || 'unknown'}`);
      span.setAttributes({
        'http.request.method': method,
        'url.path': path,
        'http.route': exchange.routePath,
        'http.response.status_code': response.statusCode,
        'atoll.request_id': exchange.requestId,
      });
      if (exchange.keyId !== undefined) span.setAttribute('atoll.key_id', exchange.keyId);
      if (exchange.errorCode !== undefined) span.setAttribute('error.type', exchange.errorCode);
      if (response.statusCode >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
      span.end();
    });
    await context.with(trace.setSpan(parent, span), work);
  }
}
