/** Asks for one address over and over: many clients, each with a connection that it keeps. */
import { Agent, request } from 'node:http';
import { serveJobs } from './serve-jobs.ts';

interface Target {
  readonly url: string;
  readonly path: string;
  readonly headers: Record<string, string>;
}

const agents = new Map<string, Agent>();

function ask({ url, path, headers }: Target, agent: Agent): Promise<void> {
  const { hostname, port } = new URL(url);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const call = request({ agent, host: hostname, port, path, headers }, (answer) => {
    answer.resume();
    answer.on('end', () => (answer.statusCode === 200 ? resolve() : reject(new Error(`${answer.statusCode}`))));
    answer.on('error', reject);
  });
  call.on('error', reject);
  call.end();
  return promise;
}

serveJobs(
  {
    /** How many `clients` at a time finish in the time given. */
    many: async ({ target, clients, ms }: { target: Target; clients: number; ms: number }) => {
      const agent = agents.get(target.url) ?? new Agent({ keepAlive: true, maxSockets: clients });
      agents.set(target.url, agent);
      const startedAt = performance.now();
      let done = 0;
      const client = async () => {
        while (performance.now() - startedAt < ms) {
          await ask(target, agent);
          done++;
        }
      };
      await Promise.all(Array.from({ length: clients }, client));
      return { done, seconds: (performance.now() - startedAt) / 1000 };
    },
  },
  async () => {
    for (const agent of agents.values()) agent.destroy();
  },
);
