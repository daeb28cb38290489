/** The tools of `atoll mcp`. Whatever changes the sandbox holds its lease; what only looks does not. */
import { z } from 'zod';
import { runCollected, runCycle } from '../../checkout/index.ts';
import { cycleOptions, openCheckoutHere } from '../checkout-call.ts';
import { checkpointTools } from './checkpoint-tools.ts';
import { changing, looking, type Tool, tool } from './tool.ts';

const fileMaxBytes = 1024 * 1024;
const entriesMax = 1_000;
const command = z
  .union([z.array(z.string()).min(1), z.string().min(1)])
  .describe('a program and its arguments, or a text for a shell');
const timeoutMs = z.int().min(1).optional();
const cwd = z.string().optional().describe('in the sandbox; the checkout without it');
const path = z.string().min(1).describe('in the sandbox');
const paths = z.array(z.string()).optional().describe('only these, from the root of the checkout');

export const tools: readonly Tool[] = [
  tool({
    name: 'exec',
    description:
      'Sends local changes into the sandbox, runs a command there, brings changes back, and tells its output and exit code.',
    inputSchema: z.object({
      command,
      timeoutMs,
      cwd,
      reset: z.boolean().default(false).describe('begin with a new sandbox'),
    }),
    run: async (call, { reset, ...given }, signal) => {
      const checkout = await openCheckoutHere(call, { signal });
      const reason = typeof given.command === 'string' ? given.command : given.command.join(' ');
      const sync = call.options.sync === false ? undefined : await checkout.sync();
      const { result, pullError, ...rest } = await runCycle(cycleOptions(call, checkout, { reason, sync, signal }), {
        run: (leased) => runCollected(leased, given),
        mayPull: () => true,
        isReset: reset,
      });
      return { ...rest, ...result, pullError: pullError && { code: pullError.code, message: pullError.message } };
    },
  }),
  tool({
    name: 'process_start',
    description: 'Starts a process that goes on by itself.',
    inputSchema: z.object({ command, name: z.string().optional(), cwd, timeoutMs }),
    run: (call, given, signal) =>
      changing(call, `start ${given.name ?? 'a process'}`, signal, async ({ sandbox, definition }) => {
        const { command: words, name, timeoutMs: limitMs } = given;
        const process = await sandbox.processes.start(words, {
          cwd: given.cwd ?? definition.directory,
          env: definition.env,
          ...(name !== undefined && { name }),
          ...(limitMs !== undefined && { timeoutMs: limitMs }),
        });
        return process.view;
      }),
  }),
  tool({
    name: 'process_list',
    description: 'The processes of the sandbox, running ones first.',
    inputSchema: z.object({}),
    run: (call, _given, signal) =>
      looking(call, signal, async (sandbox) => (await sandbox.processes.list()).items.map(({ view }) => view)),
  }),
  tool({
    name: 'process_output',
    description: 'What a process has written, from a cursor on.',
    inputSchema: z.object({ process: z.string(), cursor: z.string().optional() }),
    run: (call, { process, cursor }, signal) =>
      looking(call, signal, async (sandbox) =>
        (await sandbox.processes.get(process)).readOutput(cursor === undefined ? {} : { cursor }),
      ),
  }),
  tool({
    name: 'process_kill',
    description: 'Sends a signal (TERM unless told) to a process and everything it started.',
    inputSchema: z.object({ process: z.string(), signal: z.string().optional() }),
    run: (call, { process, signal: wanted }, signal) =>
      changing(call, `kill ${process}`, signal, async ({ sandbox }) => {
        const found = await sandbox.processes.get(process);
        return (await found.kill(wanted === undefined ? { graceMs: 5_000 } : { signal: wanted })).view;
      }),
  }),
  tool({
    name: 'file_read',
    description: `Reads a text file of the sandbox, up to ${fileMaxBytes} bytes from an offset on.`,
    inputSchema: z.object({ path, offset: z.int().min(0).default(0) }),
    run: (call, given, signal) =>
      looking(call, signal, async (sandbox) => {
        const bytes = await sandbox.files.read(given.path, { offset: given.offset, length: fileMaxBytes });
        return { text: new TextDecoder().decode(bytes), bytes: bytes.byteLength };
      }),
  }),
  tool({
    name: 'file_write',
    description: 'Writes a text file of the sandbox, whole.',
    inputSchema: z.object({ path, text: z.string() }),
    run: (call, given, signal) =>
      changing(call, `write ${given.path}`, signal, ({ sandbox }) => sandbox.files.write(given.path, given.text)),
  }),
  tool({
    name: 'file_list',
    description: `What is in a directory of the sandbox, at most ${entriesMax} entries.`,
    inputSchema: z.object({ path, depth: z.int().min(1).max(10).default(1) }),
    run: (call, given, signal) =>
      looking(call, signal, async (sandbox) =>
        (await sandbox.files.list(given.path, { depth: given.depth })).slice(0, entriesMax),
      ),
  }),
  ...checkpointTools,
  tool({
    name: 'lease_status',
    description: 'Who uses the sandbox now, and how many wait.',
    inputSchema: z.object({}),
    run: async (call, _given, signal) => {
      const { client, resolver } = await openCheckoutHere(call, { signal });
      return await client.leases.list({ resource: (await resolver.get()).sandbox.id });
    },
  }),
  ...(['push', 'pull'] as const).map((direction) =>
    tool({
      name: `sync_${direction}`,
      description:
        direction === 'push' ? 'Sends local changes into the sandbox.' : 'Brings changes in the sandbox back.',
      inputSchema: z.object({ paths, dryRun: z.boolean().default(false) }),
      run: async (call, given, signal) => {
        const engine = await (await openCheckoutHere(call)).sync();
        return await changing(call, `sync ${direction}`, signal, (leased) =>
          engine[direction](leased.sandbox, {
            leaseToken: leased.leaseToken,
            signal: leased.signal,
            dryRun: given.dryRun,
            ...(given.paths && { paths: given.paths }),
          }),
        );
      },
    }),
  ),
  tool({
    name: 'sync_status',
    description: 'What differs between the checkout and its sandbox; nothing is changed.',
    inputSchema: z.object({}),
    run: async (call, _given, signal) => {
      const checkout = await openCheckoutHere(call, { signal });
      return await (await checkout.sync()).status((await checkout.resolver.get()).sandbox, { signal });
    },
  }),
];
