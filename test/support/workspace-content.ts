/** What goes into a workspace and comes out of one, as tests write and read it. */
import { buildTar } from './tar-builder.ts';

/** Files by path, as an archive. */
export function tarOf(files: Readonly<Record<string, string>>): Uint8Array {
  return buildTar(Object.entries(files).map(([name, content]) => ({ name, content })));
}

export async function textIn(bytes: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of bytes as AsyncIterable<Uint8Array>) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}
