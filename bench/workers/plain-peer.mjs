/**
 * The peers of processes and files: Node's own spawn and fs, from a small process. Plain JavaScript, because stripping types would make the process
 * larger, and Node's spawn takes time in proportion to that. Requests go to a server that does nothing with them.
 */
import { fork, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { servePlainJobs } from './serve-plain-jobs.mjs';

let url = '';
let server;

async function timed(work) {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

async function roundTrip({ body, bytes = 0 } = {}) {
  const answer = await fetch(`${url}${bytes}`, body === undefined ? {} : { method: 'PUT', body });
  await answer.arrayBuffer();
}

const jobs = {
  serve: async () => {
    server = fork(join(import.meta.dirname, 'empty-server.mjs'), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    [url] = await once(server, 'message');
  },

  /** Milliseconds from the start of a command to so many bytes of its output. */
  output: async ({ command: [program, ...args], bytes }) => {
    const closed = Promise.withResolvers();
    const ms = await timed(async () => {
      const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
      child.on('close', closed.resolve);
      let seen = 0;
      for await (const chunk of child.stdout) {
        seen += chunk.byteLength;
        if (seen >= bytes) return;
      }
      throw new Error(`The output has ${seen} bytes.`);
    });
    await closed.promise;
    return ms;
  },

  write: async ({ path, bytes }) => {
    const data = randomBytes(bytes);
    return await timed(() => writeFile(path, data));
  },

  read: async ({ path }) => await timed(() => readFile(path)),

  writeAndRoundTrip: async ({ path, bytes }) => {
    const data = randomBytes(bytes);
    return await timed(async () => {
      await writeFile(path, data);
      await roundTrip({ body: data });
    });
  },

  /** So many bytes to the server, and back from it. */
  send: async ({ bytes }) => {
    const body = randomBytes(bytes);
    return await timed(() => roundTrip({ body }));
  },

  receive: async ({ bytes }) => await timed(() => roundTrip({ bytes })),

  readAndRoundTrip: async ({ path }) =>
    await timed(async () => {
      await readFile(path);
      await roundTrip();
    }),
};

servePlainJobs(jobs, () => server?.disconnect());
