/** Checkpoints of the checkout's sandbox, for agents: to try something and go back, or to go several ways at once. */
import { z } from 'zod';
import { withoutClientState } from '../../checkout/index.ts';
import { changing, looking, type Tool, tool } from './tool.ts';

const forksMax = 10;
const checkpoint = z.string().min(1).describe('its id, chk…');

export const checkpointTools: readonly Tool[] = [
  tool({
    name: 'checkpoint_list',
    description: 'The checkpoints of the sandbox, newest first, one page.',
    inputSchema: z.object({ cursor: z.string().optional() }),
    run: (call, { cursor }, signal) =>
      looking(call, signal, (sandbox) => sandbox.checkpoints.list(cursor === undefined ? {} : { cursor })),
  }),
  tool({
    name: 'checkpoint_create',
    description: 'Keeps the files of the sandbox as they are at this instant; its processes go on.',
    inputSchema: z.object({ name: z.string().min(1).optional() }),
    run: (call, { name }, signal) =>
      changing(call, `checkpoint ${name ?? ''}`.trimEnd(), signal, ({ sandbox }) =>
        sandbox.checkpoints.create(name === undefined ? {} : { name }),
      ),
  }),
  tool({
    name: 'checkpoint_restore',
    description:
      'Puts the files of a checkpoint in place of those of the sandbox and ends its processes. Files of the checkout are not touched: the next exec sends them in again.',
    inputSchema: z.object({ checkpoint }),
    run: (call, given, signal) =>
      changing(
        call,
        `restore ${given.checkpoint}`,
        signal,
        async ({ sandbox }) => (await sandbox.restore(given.checkpoint)).view,
      ),
  }),
  tool({
    name: 'checkpoint_fork',
    description:
      'Makes sandboxes of their own that begin with the files of this one as they are now, and tells their ids. They belong to no checkout; other commands take them by id, and "atoll rm" ends them.',
    inputSchema: z.object({
      count: z.int().min(1).max(forksMax).default(1),
      expiresInMs: z.int().min(1_000).optional().describe('after this they end by themselves'),
    }),
    run: (call, { count, expiresInMs }, signal) =>
      changing(call, `fork ${count}`, signal, async ({ sandbox }) => {
        const metadata = withoutClientState(sandbox.metadata);
        const forks = await sandbox.fork({ count, metadata, ...(expiresInMs !== undefined && { expiresInMs }) });
        return forks.map(({ sandbox: fork, error }) => ({
          id: fork?.id ?? null,
          error: error && { code: error.code, message: error.message },
        }));
      }),
  }),
];
