/** Pages of any origin may ask the agent: it trusts tokens and signatures, which a page does not send by itself. */
import type { IncomingMessage, ServerResponse } from 'node:http';

const exposed = [
  ...['Location', 'Cache-Control', 'X-Content-Type-Options', 'Content-Encoding', 'Content-Range'],
  ...['Connect-Content-Encoding', 'Connect-Protocol-Version', 'Grpc-Message', 'Grpc-Status', 'Grpc-Status-Details-Bin'],
].join(', ');
const preflightSeconds = '7200';

/** Whether the request was only the question whether it may be made, and is answered. */
export function allowOrigins(request: IncomingMessage, response: ServerResponse): boolean {
  response.setHeader('Access-Control-Allow-Origin', '*');
  response.setHeader('Access-Control-Expose-Headers', exposed);
  if (request.method !== 'OPTIONS') return false;
  const wanted = request.headers['access-control-request-headers'];
  response.writeHead(204, {
    'Access-Control-Allow-Methods': 'HEAD, GET, POST, PUT, PATCH, DELETE',
    'Access-Control-Allow-Headers': typeof wanted === 'string' && wanted !== '' ? wanted : '*',
    'Access-Control-Max-Age': preflightSeconds,
  });
  response.end();
  return true;
}
