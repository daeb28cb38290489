/** In a namespace: a unix socket (first argument), which needs no network to be reached, that leads to a port on loopback (second). */
import { createConnection, createServer } from 'node:net';

const [path, port] = process.argv.slice(2);
createServer({ allowHalfOpen: true }, (near) => {
  const far = createConnection({ host: '127.0.0.1', port: Number(port), allowHalfOpen: true });
  near.pipe(far).pipe(near);
  near.on('error', () => far.destroy());
  far.on('error', () => near.destroy());
}).listen(path, () => process.stdout.write('ready\n'));
