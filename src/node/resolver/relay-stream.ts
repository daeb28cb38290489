/** A question over TCP: the bytes go to one of the machine's resolvers and back, until either side ends or is quiet for too long. */
import { connect, type Socket } from 'node:net';
import { pipeline } from 'node:stream';
import type { Upstream } from './upstreams.ts';

const quietLimitMs = 10_000;
/** Of one connection, both ways. */
const totalLimitBytes = 16 * 1024 * 1024;

export function relayStream(stream: Socket, server: Upstream): void {
  const upstream = connect({ host: server.address, port: server.port, family: server.family });
  const end = () => {
    stream.destroy();
    upstream.destroy();
  };
  for (const side of [stream, upstream]) {
    side.setTimeout(quietLimitMs, end);
    side.on('data', () => {
      if (stream.bytesRead + upstream.bytesRead > totalLimitBytes) end();
    });
  }
  pipeline(stream, upstream, stream, end);
}
