import { expect, test } from 'vitest';
import {
  type OutputFrameKind,
  outputFrameHeadBytes,
  outputFrameKinds,
  outputFramesType,
  writeOutputFrameHead,
} from '../protocol/index.ts';
import { Connection } from './connection.ts';
import { followOutput, type OutputItem } from './process-output.ts';

const of = { params: { sandboxId: 'sbx', process: 'prc' }, generation: 3 };
const clock = { nowMs: () => 0, wait: async () => {} };

/** A server that gives each connection one of these bodies and remembers where each asked to go on. */
function serverOf(bodies: readonly (Uint8Array<ArrayBuffer> | Error)[]) {
  const resumed: (string | null)[] = [];
  const left = [...bodies];
  const fake: typeof fetch = async (_url, init) => {
    resumed.push(new Headers(init?.headers).get('Last-Event-ID'));
    const body = left.shift();
    if (body === undefined || body instanceof Error) throw body ?? new Error('There is no more.');
    return new Response(body, { headers: { 'Content-Type': outputFramesType } });
  };
  return { connection: new Connection({ url: 'http://server', apiKey: 'key', fetch: fake, clock }), resumed };
}

const joined = (...parts: Uint8Array[]) => new Uint8Array(Buffer.concat(parts));
const frame = (kind: OutputFrameKind, text: string, position = 0) => {
  const bytes = new Uint8Array(outputFrameHeadBytes + Buffer.byteLength(text));
  writeOutputFrameHead(bytes, { kind, length: Buffer.byteLength(text), position });
  bytes.set(Buffer.from(text), outputFrameHeadBytes);
  return bytes;
};
const output = (text: string, position: number) => frame(outputFrameKinds.stdout, text, position);
const ended = frame(outputFrameKinds.item, JSON.stringify({ kind: 'ended', cursor: 'prc.99' }));
const beat = frame(outputFrameKinds.heartbeat, '');

async function read(items: AsyncIterable<OutputItem>): Promise<string> {
  let text = '';
  for await (const item of items)
    text += item.kind === 'output' ? new TextDecoder().decode(item.bytes) : `<${item.kind}>`;
  return text;
}

test('a stream that breaks off is opened again behind the last item, also when the server is away for a while', async () => {
  const { connection, resumed } = serverOf([
    joined(output('a', 1), beat, output('b', 2), output('cut', 3).subarray(0, 15)),
    Object.assign(new TypeError('fetch failed'), { cause: { code: 'ECONNREFUSED' } }),
    output('c', 3),
    ended,
  ]);
  expect(await read(followOutput(connection, of, { cursor: 'prc.0' }))).toBe('abc<ended>');
  expect(resumed).toEqual(['prc.0', 'prc.2', 'prc.2', 'prc.3']);
});

test('a refusal that waiting cannot mend is thrown, whether it is the answer or comes in the stream', async () => {
  const error = (code: string) =>
    frame(outputFrameKinds.error, JSON.stringify({ error: { code, message: 'no', requestId: 'r' } }));
  const { connection } = serverOf([joined(output('a', 1), error('process_not_found'))]);
  await expect(read(followOutput(connection, of, {}))).rejects.toMatchObject({ code: 'process_not_found' });
  const mended = serverOf([joined(output('a', 1), error('node_unavailable')), ended]);
  expect(await read(followOutput(mended.connection, of, {}))).toBe('a<ended>');
});

test("the caller's signal ends the reading with its own reason", async () => {
  const stop = new AbortController();
  const { connection } = serverOf([output('a', 1), output('b', 2)]);
  const items = followOutput(connection, of, { signal: stop.signal });
  expect((await items.next()).value).toMatchObject({ kind: 'output', cursor: 'prc.1' });
  stop.abort(new Error('enough'));
  await expect(items.next()).rejects.toThrow('enough');
});
