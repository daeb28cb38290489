import { expect, test } from 'vitest';
import { Connection } from './connection.ts';
import { followOutput, type OutputItem } from './process-output.ts';

const of = { params: { sandboxId: 'sbx', process: 'prc' }, generation: 3 };
const clock = { nowMs: () => 0, wait: async () => {} };

/** A server that gives each connection one of these bodies and remembers where each asked to go on. */
function serverOf(bodies: readonly (string | Error)[]) {
  const resumed: (string | null)[] = [];
  const left = [...bodies];
  const fake: typeof fetch = async (_url, init) => {
    resumed.push(new Headers(init?.headers).get('Last-Event-ID'));
    const body = left.shift();
    if (body === undefined || body instanceof Error) throw body ?? new Error('There is no more.');
    return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } });
  };
  return { connection: new Connection({ url: 'http://server', apiKey: 'key', fetch: fake, clock }), resumed };
}

const output = (text: string, cursor: string) =>
  event({ kind: 'output', stream: 'stdout', data: btoa(text), encoding: 'base64', cursor });
const event = (item: { cursor: string; kind: string; [key: string]: unknown }) =>
  `id: ${item.cursor}\ndata: ${JSON.stringify(item)}\n\n`;
const ended = event({ kind: 'ended', cursor: 'prc.99' });

async function read(items: AsyncIterable<OutputItem>): Promise<string> {
  let text = '';
  for await (const item of items)
    text += item.kind === 'output' ? new TextDecoder().decode(item.bytes) : `<${item.kind}>`;
  return text;
}

test('a stream that breaks off is opened again behind the last item, also when the server is away for a while', async () => {
  const { connection, resumed } = serverOf([
    output('a', 'prc.1') + output('b', 'prc.2') + output('cut', 'prc.3').slice(0, 20),
    Object.assign(new TypeError('fetch failed'), { cause: { code: 'ECONNREFUSED' } }),
    output('c', 'prc.3'),
    ended,
  ]);
  expect(await read(followOutput(connection, of, { cursor: 'prc.0' }))).toBe('abc<ended>');
  expect(resumed).toEqual(['prc.0', 'prc.2', 'prc.2', 'prc.3']);
});

test('a refusal that waiting cannot mend is thrown, whether it is the answer or comes in the stream', async () => {
  const error = (code: string) =>
    `event: error\ndata: ${JSON.stringify({ error: { code, message: 'no', requestId: 'r' } })}\n\n`;
  const { connection } = serverOf([output('a', 'prc.1') + error('process_not_found')]);
  await expect(read(followOutput(connection, of, {}))).rejects.toMatchObject({ code: 'process_not_found' });
  const mended = serverOf([output('a', 'prc.1') + error('node_unavailable'), ended]);
  expect(await read(followOutput(mended.connection, of, {}))).toBe('a<ended>');
});

test("the caller's signal ends the reading with its own reason", async () => {
  const stop = new AbortController();
  const { connection } = serverOf([output('a', 'prc.1'), output('b', 'prc.2')]);
  const items = followOutput(connection, of, { signal: stop.signal });
  expect((await items.next()).value).toMatchObject({ kind: 'output', cursor: 'prc.1' });
  stop.abort(new Error('enough'));
  await expect(items.next()).rejects.toThrow('enough');
});
