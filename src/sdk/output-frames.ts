/** Reads the frames of an answer of output. A stream that breaks off or falls silent is `server_unreachable`. */
import { type OutputFrame, OutputFrameReader, outputFrameKinds, PlatformError } from '../protocol/index.ts';
import type { Answer } from './send.ts';
import { readBefore } from './server-events.ts';

/** Longer than three heartbeats of the server: the connection is dead. */
const silenceMs = 50_000;

export async function* readOutputFrames(response: Answer): AsyncGenerator<OutputFrame, void> {
  const reader = response.reader?.() ?? response.body?.getReader();
  if (reader === undefined) return;
  const frames = new OutputFrameReader();
  try {
    while (true) {
      const { done, value } = await readBefore(reader, silenceMs);
      if (done || value === undefined) break;
      for (const frame of frames.push(value)) {
        if (frame.kind !== outputFrameKinds.heartbeat) yield frame;
      }
    }
    if (frames.isWithin) throw new PlatformError('server_unreachable', 'The stream broke off.');
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
