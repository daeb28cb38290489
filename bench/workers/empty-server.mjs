/** A server that reads what it is sent and answers with nothing: what HTTP itself costs. */
import { createServer } from 'node:http';

const server = createServer((request, response) => {
  request.resume();
  request.on('end', () => response.end());
});
server.listen(0, '127.0.0.1', () => process.send(`http://127.0.0.1:${server.address().port}/`));
process.on('SIGINT', () => {});
process.once('disconnect', () => process.exit());
