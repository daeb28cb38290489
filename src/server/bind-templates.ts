/** The routes of templates, bound in one line each. */
import { PlatformError, routes } from '../protocol/index.ts';
import type { EventStreams } from './event-stream.ts';
import type { Exchange } from './exchange.ts';
import type { Handle } from './route-binding.ts';
import type { TemplatesPort } from './templates-port.ts';

export function bindTemplates(handle: Handle, templates: TemplatesPort, streams: EventStreams): void {
  handle(routes.buildTemplate, ({ caller, conditions, body }) => templates.build(caller, conditions, body));
  handle(routes.uploadTemplateContext, ({ content }) => templates.uploadContext(content));
  handle(routes.getTemplateBuild, ({ caller, params }) => templates.getBuild(caller, params));
  handle(routes.readTemplateBuildLog, ({ caller, params, query, exchange }) => {
    const from = { ...query, ...lastEventId(exchange) };
    if (!streams.isWanted(exchange)) return templates.log(caller, params, from);
    const items = templates.follow(caller, params, from, exchange.ending);
    return streams.answerFrom(exchange, items, (item) => item.cursor);
  });
  handle(routes.cancelTemplateBuild, ({ caller, params, conditions }) => templates.cancel(caller, params, conditions));
  handle(routes.listTemplates, ({ caller }) => templates.list(caller));
  handle(routes.getTemplate, ({ caller, params }) => templates.get(caller, params.name));
  handle(routes.removeTemplate, ({ caller, params, conditions }) => templates.remove(caller, params.name, conditions));
}

/** What the reader saw last goes before where it began: it is the same URL that is asked again. */
function lastEventId(exchange: Exchange): { cursor?: string } {
  const text = exchange.request.headers['last-event-id'];
  if (typeof text !== 'string' || text === '') return {};
  if (/^\d{1,15}$/.test(text)) return { cursor: text };
  throw new PlatformError('invalid_request', 'Last-Event-ID is the cursor of an item.');
}
