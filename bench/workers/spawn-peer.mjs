/**
 * The peer that every command is compared with: child_process.spawn from a small Node process. Plain JavaScript, because
 * stripping types would make the process larger, and Node's spawn takes time in proportion to that.
 */
import { spawn } from 'node:child_process';
import { servePlainJobs } from './serve-plain-jobs.mjs';

const jobs = {
  /** Milliseconds for one. */
  one: async () => {
    const startedAt = performance.now();
    await runOne();
    return performance.now() - startedAt;
  },

  /** How many `clients` at a time finish in the time given. */
  many: async ({ clients, ms }) => {
    const startedAt = performance.now();
    let done = 0;
    const client = async () => {
      while (performance.now() - startedAt < ms) {
        await runOne();
        done++;
      }
    };
    await Promise.all(Array.from({ length: clients }, client));
    return { done, seconds: (performance.now() - startedAt) / 1000 };
  },
};

function runOne() {
  return new Promise((resolve, reject) => {
    const child = spawn('sh', ['-c', 'true']);
    child.on('error', reject);
    child.on('close', (code) => (code === 0 ? resolve() : reject(new Error(`sh ended with ${code}`))));
  });
}

servePlainJobs(jobs);
