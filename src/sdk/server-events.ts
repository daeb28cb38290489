/** Reads the messages of a `text/event-stream` answer. A stream that breaks off or falls silent is `server_unreachable`. */
import { PlatformError } from '../protocol/index.ts';
import type { Answer, ContentReader } from './send.ts';

export interface ServerEvent {
  readonly id: string | undefined;
  readonly event: string;
  readonly data: string;
}

/** Of one message; a server of ours sends far less. */
const messageMaxLength = 16 * 1024 * 1024;

export async function* readServerEvents(
  response: Answer,
  options: { readonly silenceMs: number },
): AsyncGenerator<ServerEvent, void, undefined> {
  if (response.body === null) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    while (true) {
      const { done, value } = await readBefore(reader, options.silenceMs);
      if (done) return;
      const text = decoder.decode(value, { stream: true });
      rest += text;
      // Only a line's end can complete a message: a long one is not gone through again with every piece of it.
      const blocks = text.includes('\n') ? rest.split(rest.includes('\r') ? /\r?\n\r?\n/ : '\n\n') : [rest];
      rest = blocks.pop() ?? '';
      if (rest.length > messageMaxLength) throw new PlatformError('server_unreachable', 'A message has no end.');
      for (const block of blocks) {
        const message = parseBlock(block);
        if (message !== undefined) yield message;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** The next of it, unless it takes so long that nobody can be there any more. */
export async function readBefore(reader: Pick<ContentReader, 'read'>, silenceMs: number) {
  const silence = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => silence.reject(new PlatformError('server_unreachable', 'The stream fell silent.')),
    silenceMs,
  );
  try {
    return await Promise.race([reader.read(), silence.promise]);
  } catch (error) {
    if (error instanceof PlatformError) throw error;
    throw new PlatformError('server_unreachable', 'The stream broke off.', { cause: error });
  } finally {
    clearTimeout(timer);
  }
}

/** Comments, which are heartbeats, say nothing. */
function parseBlock(block: string): ServerEvent | undefined {
  let id: string | undefined;
  let event = 'message';
  const data: string[] = [];
  for (const one of block.split('\n')) {
    const line = one.endsWith('\r') ? one.slice(0, -1) : one;
    const colon = line.indexOf(':');
    if (colon === 0) continue;
    const name = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'id') id = value;
    else if (name === 'event') event = value;
    else if (name === 'data') data.push(value);
  }
  return id === undefined && data.length === 0 ? undefined : { id, event, data: data.join('\n') };
}
