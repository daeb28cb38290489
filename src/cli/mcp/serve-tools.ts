/**
 * The MCP server of one checkout, on our standard streams. Each call of a tool is a cycle of its own, so that several agents, and people with the
 * command line, take turns on one sandbox. A failure is the tool's answer, with its code; only a broken connection ends the server.
 */
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import type { CheckoutOptions } from '../checkout-call.ts';
import type { CommandCall } from '../command-call.ts';
import { explainError } from '../explain-error.ts';
import { tools } from './tools.ts';

const instructions =
  'Tools for the sandbox that belongs to this checkout. "exec" sends local changes in, runs a command and brings changes back; the other tools act on the sandbox as it is.';

export async function serveTools(call: CommandCall<CheckoutOptions>): Promise<void> {
  const { promise: over, resolve } = Promise.withResolvers<void>();
  const handle = serveStdio(() => {
    const server = new McpServer({ name: 'atoll', version: call.io.version }, { instructions });
    for (const tool of tools) {
      const { name, description, inputSchema, run } = tool;
      server.registerTool(name, { description, inputSchema }, async (given: unknown, { mcpReq }) => {
        try {
          return answer(await run(call, given as never, mcpReq.signal), false);
        } catch (error) {
          return answer(explainError(error).json, true);
        }
      });
    }
    return server;
  });
  const stopListening = call.io.onInterrupt(resolve);
  process.stdin.once('end', resolve);
  process.stdin.once('close', resolve);
  try {
    await over;
  } finally {
    stopListening();
    await handle.close();
  }
}

function answer(value: unknown, isError: boolean) {
  return { content: [{ type: 'text' as const, text: JSON.stringify(value) }], isError };
}
