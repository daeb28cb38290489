/** A worker's side of `worker.ts`: answers jobs until the channel is gone, then cleans up. */
type Job = (options: never) => Promise<unknown>;

export function serveJobs(jobs: Readonly<Record<string, Job>>, cleanUp: () => Promise<void>): void {
  // The bench decides when it is over, also when somebody types an interrupt at the terminal.
  process.on('SIGINT', () => {});
  process.on('message', async ({ id, job, options }: { id: number; job: string; options: never }) => {
    try {
      const result = await jobs[job]!(options);
      process.send?.({ id, result });
    } catch (error) {
      process.send?.({ id, error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
    }
  });
  process.once('disconnect', async () => {
    await cleanUp();
    process.exit();
  });
}
