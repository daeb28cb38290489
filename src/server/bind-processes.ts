/** The routes of processes, bound in one line each. */
import { routes } from '../protocol/index.ts';
import type { EventStreams } from './event-stream.ts';
import type { Exchange } from './exchange.ts';
import { answerWithItems } from './item-stream.ts';
import { outputFormatFor } from './output-formats.ts';
import type { ProcessesPort } from './processes-port.ts';
import type { Handle } from './route-binding.ts';

export function bindProcesses(handle: Handle, processes: ProcessesPort, streams: EventStreams): void {
  handle(routes.startProcess, ({ caller, params, conditions, body, exchange }) => {
    const { sandboxId } = params;
    const format = outputFormatFor(exchange);
    if (format === undefined) return processes.start(caller, sandboxId, conditions, body);
    const items = processes.startAndFollow(caller, sandboxId, conditions, body, exchange.ending);
    return answerWithItems(exchange, items, format, streams.beat, routes.startProcess.status);
  });
  handle(routes.listProcesses, ({ caller, params, conditions, query }) =>
    processes.list(caller, params.sandboxId, conditions, query),
  );
  handle(routes.getProcess, ({ caller, params, conditions }) => processes.get(caller, params, conditions));
  handle(routes.readProcessOutput, ({ caller, params, conditions, query, exchange }) => {
    const from = { ...query, ...lastEventId(exchange) };
    const format = outputFormatFor(exchange, query.encoding);
    if (format === undefined) return processes.output(caller, params, conditions, from, exchange.ending);
    const items = processes.follow(caller, params, conditions, from, exchange.ending);
    return answerWithItems(exchange, items, format, streams.beat);
  });
  handle(routes.writeProcessStdin, ({ caller, params, conditions, body }) =>
    processes.writeStdin(caller, params, conditions, body),
  );
  handle(routes.signalProcess, ({ caller, params, conditions, body }) =>
    processes.signal(caller, params, conditions, body),
  );
  handle(routes.killProcesses, ({ caller, params, conditions, body }) =>
    processes.killAll(caller, params.sandboxId, conditions, body),
  );
  handle(routes.waitProcess, ({ caller, params, conditions, query, exchange }) =>
    processes.wait(caller, params, conditions, query, exchange.ending),
  );
  handle(routes.removeProcess, ({ caller, params, conditions }) => processes.remove(caller, params, conditions));
  handle(routes.probePort, ({ caller, params, conditions, query, exchange }) =>
    processes.probePort(caller, params, conditions, query, exchange.ending),
  );
}

/** What the reader saw last goes before where it began: it is the same URL that is asked again. Checked as a cursor by control. */
function lastEventId(exchange: Exchange): { cursor?: string } {
  const text = exchange.request.headers['last-event-id'];
  return typeof text === 'string' && text !== '' ? { cursor: text } : {};
}
