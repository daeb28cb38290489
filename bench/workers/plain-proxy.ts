/** The peer that previews are compared with: a proxy of a few lines in Node, with keep-alive, before a service on loopback. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent, createServer, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { serveJobs } from './serve-jobs.ts';

const agent = new Agent({ keepAlive: true });
let service: ChildProcess | undefined;
let proxy: Server | undefined;

serveJobs(
  {
    /** Starts both, and answers with the address of the proxy. `program`: a service that prints its port. */
    open: async ({ program }: { program: string }) => {
      const child = spawn('python3', ['-uc', program], { stdio: ['ignore', 'pipe', 'inherit'] });
      service = child;
      const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
      const port = Number(line);
      const server = createServer((request, response) => {
        const { method, url, headers } = request;
        const outgoing = httpRequest({ agent, host: '127.0.0.1', port, method, path: url, headers }, (answer) => {
          response.writeHead(answer.statusCode ?? 502, answer.headers);
          answer.pipe(response);
        });
        outgoing.on('error', () => response.destroy());
        request.pipe(outgoing);
      });
      proxy = server;
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    },
  },
  async () => {
    agent.destroy();
    proxy?.close();
    service?.kill('SIGKILL');
  },
);
