/** `serve-jobs.ts` for the peers, which are plain JavaScript to keep their processes small. */
export function servePlainJobs(jobs, cleanUp = () => {}) {
  process.on('SIGINT', () => {});
  process.on('message', async ({ id, job, options }) => {
    try {
      process.send({ id, result: await jobs[job](options) });
    } catch (error) {
      process.send({ id, error: String(error) });
    }
  });
  process.once('disconnect', () => {
    cleanUp();
    process.exit();
  });
}
