/** Processes and files as a user of the SDK has them. */
import { randomBytes } from 'node:crypto';
import { Atoll, type Process, type Sandbox } from '../../src/sdk/index.ts';
import type { ServerAddress } from '../http-client.ts';
import { timed } from '../interleave.ts';
import { serveJobs } from './serve-jobs.ts';

let sandbox: Sandbox | undefined;
let atoll: Atoll | undefined;
const held = new AbortController();

/** Reads until `bytes` of output have come. */
async function readBytes(process: Process, bytes: number): Promise<void> {
  let seen = 0;
  for await (const item of process.output()) {
    if (item.kind === 'output') seen += item.bytes.byteLength;
    if (seen >= bytes) return;
  }
  throw new Error(`The output has ${seen} bytes.`);
}

serveJobs(
  {
    connect: async ({ address, sandboxId }: { address: ServerAddress; sandboxId?: string }) => {
      atoll = new Atoll({ url: address.url, apiKey: address.key });
      if (sandboxId !== undefined) sandbox = await atoll.sandboxes.connect(sandboxId);
    },

    /** Milliseconds from the start of a command to so many bytes of its output. */
    output: async ({ command, bytes }: { command: string[]; bytes: number }) => {
      let started: Process | undefined;
      const ms = await timed(async () => {
        started = await sandbox!.processes.start(command, { follow: true });
        await readBytes(started, bytes);
      });
      await started!.wait({ for: 'tree' });
      await started!.remove();
      return ms;
    },

    write: async ({ path, bytes }: { path: string; bytes: number }) => {
      const data = randomBytes(bytes);
      return await timed(() => sandbox!.files.write(path, data));
    },

    read: async ({ path, bytes }: { path: string; bytes: number }) =>
      await timed(async () => {
        const { byteLength } = await sandbox!.files.read(path);
        if (byteLength !== bytes) throw new Error(`The file has ${byteLength} bytes.`);
      }),

    /** Starts so many processes in each sandbox, and follows each until the worker ends. */
    follow: async ({ sandboxIds, each }: { sandboxIds: string[]; each: number }) => {
      for (const id of sandboxIds) {
        const own = await atoll!.sandboxes.connect(id);
        await Promise.all(
          Array.from({ length: each }, async () => {
            const process = await own.processes.start(['sh', '-c', 'echo ready; exec sleep 3600']);
            const items = process.output({ signal: held.signal });
            if ((await items.next()).value?.kind !== 'output') throw new Error('A process said nothing.');
            // Waits for more, as long as the worker lives.
            items.next().catch(() => {});
          }),
        );
      }
    },
  },
  async () => held.abort(),
);
