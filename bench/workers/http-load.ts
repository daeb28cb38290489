/** Sends commands over HTTP: one at a time, or as many clients. */
import { HttpClient, type ServerAddress } from '../http-client.ts';
import { serveJobs } from './serve-jobs.ts';

const body = JSON.stringify({ command: ['true'] });
let client: HttpClient | undefined;
let path = '';

async function runOne(): Promise<void> {
  const answer = await client!.send('POST', path, body);
  if (!answer.includes('"exitCode":0')) throw new Error(`The command failed: ${answer}`);
}

serveJobs(
  {
    connect: async ({ address, sandboxId }: { address: ServerAddress; sandboxId: string }) => {
      client = new HttpClient(address);
      path = `/v1/sandboxes/${sandboxId}/exec`;
    },

    /** Milliseconds for one. */
    one: async () => {
      const startedAt = performance.now();
      await runOne();
      return performance.now() - startedAt;
    },

    /** How many `clients` at a time finish in the time given, and how long each took. */
    many: async ({ clients, ms }: { clients: number; ms: number }) => {
      const startedAt = performance.now();
      const samples: number[] = [];
      const one = async () => {
        for (let now = startedAt; now - startedAt < ms; ) {
          await runOne();
          const end = performance.now();
          samples.push(end - now);
          now = end;
        }
      };
      await Promise.all(Array.from({ length: clients }, one));
      return { done: samples.length, seconds: (performance.now() - startedAt) / 1000, samples };
    },
  },
  async () => client?.close(),
);
