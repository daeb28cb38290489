/** A server that drops what it is sent and answers with as many bytes as the path says: what HTTP itself costs. */
import { createServer } from 'node:http';

const bytes = Buffer.alloc(10_000_000);
const server = createServer((request, response) => {
  request.resume();
  request.on('end', () => response.end(bytes.subarray(0, Number(request.url.slice(1)))));
});
server.listen(0, '127.0.0.1', () => process.send(`http://127.0.0.1:${server.address().port}/`));
process.on('SIGINT', () => {});
process.once('disconnect', () => process.exit());
