/**
 * Nodes for tests, in this process or in one of their own, on a directory that is gone afterwards with everything that was made in it.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { ScriptedFaults } from '../../src/base/index.ts';
import { NodeClient, SandboxNode, type SandboxNodeOptions } from '../../src/node/index.ts';
import type { NodeApi } from '../../src/protocol/index.ts';
import { programPath } from './program-path.ts';

export const initProgram = join(import.meta.dirname, '../../native/atoll-init');

/** Built once for the whole run of tests, where that is set up (whole-run.ts). */
const layers = process.env['ATOLL_LAYERS'];
/** What every node of a test is opened with. */
export const nodeOptions: Omit<SandboxNodeOptions, 'dataDirectory'> = {
  initProgram,
  version: 'test',
  storage: 'directories',
  ...(layers === undefined ? {} : { layersDirectory: layers }),
};

export interface NodeUnderTest {
  readonly node: NodeApi;
  readonly dataDirectory: string;
  /** Ends the node as the transport can (kill -9 of a process, close in this one) and opens it again on the same directory. */
  restart(between?: () => Promise<void>): Promise<void>;
  /** Deletes every sandbox, ends the node, removes the directory. */
  close(): Promise<void>;
}

export type HarnessOptions = Partial<Omit<SandboxNodeOptions, 'dataDirectory' | 'faults'>>;

/** A direct call. `faults` is the script of its fault points. */
export async function openDirectNode(
  options: HarnessOptions = {},
): Promise<NodeUnderTest & { readonly faults: ScriptedFaults; readonly node: SandboxNode }> {
  const dataDirectory = await mkdtemp(join(tmpdir(), 'atoll-node-'));
  const faults = new ScriptedFaults();
  const open = () => SandboxNode.open({ ...nodeOptions, ...options, dataDirectory, faults });
  let node = await open().catch(async (error: unknown) => {
    await rm(dataDirectory, { recursive: true });
    throw error;
  });
  return {
    get node() {
      return node;
    },
    faults,
    dataDirectory,
    restart: async (between) => {
      await node.close();
      await between?.();
      node = await open();
    },
    close: async () => {
      await deleteAll(node);
      await node.close();
      await rm(dataDirectory, { recursive: true });
    },
  };
}

export interface NodeProcessUnderTest extends NodeUnderTest {
  /** Settles when the process that runs now is gone. */
  readonly died: Promise<void>;
  /** Like `restart`, with a script for its fault points. */
  restartWith(faultScript: string): Promise<void>;
}

/** Over HTTP to a node in its own process. */
export async function openNodeProcess(
  options: HarnessOptions & { readonly faultScript?: string } = {},
): Promise<NodeProcessUnderTest> {
  const dataDirectory = await mkdtemp(join(tmpdir(), 'atoll-node-'));
  const start = (faults: string) => startProcess({ ...options, dataDirectory, faults });
  let current = await start(options.faultScript ?? '');
  const restart = async (faultScript: string, between?: () => Promise<void>) => {
    current.child.kill('SIGKILL');
    await current.died;
    current.client.close();
    await between?.();
    current = await start(faultScript);
  };
  return {
    get node() {
      return current.client;
    },
    get died() {
      return current.died;
    },
    dataDirectory,
    restart: (between) => restart('', between),
    restartWith: (faultScript) => restart(faultScript),
    close: async () => {
      await deleteAll(current.client);
      current.child.stdin.end();
      await current.died;
      current.client.close();
      await rm(dataDirectory, { recursive: true });
    },
  };
}

interface NodeProcess {
  readonly child: ChildProcessByStdio<Writable, Readable, null>;
  readonly client: NodeClient;
  readonly died: Promise<void>;
}

async function startProcess(
  options: HarnessOptions & { readonly dataDirectory: string; readonly faults: string },
): Promise<NodeProcess> {
  const token = 'a token for tests';
  const { log: _log, clock: _clock, ...plain } = options;
  const argument = JSON.stringify({ ...nodeOptions, token, ...plain });
  const program = programPath('test/support/node-process.ts');
  const child = spawn(process.execPath, [program, argument], { stdio: ['pipe', 'pipe', 'inherit'] });
  const died = once(child, 'exit').then(() => {});
  const line = once(createInterface({ input: child.stdout }), 'line') as Promise<[string]>;
  const first = await Promise.race([line, died]);
  if (first === undefined) throw new Error('The node process ended before it listened.');
  const { url } = JSON.parse(first[0]) as { url: string };
  return { child, client: new NodeClient({ url, token }), died };
}

async function deleteAll(node: NodeApi): Promise<void> {
  const { sandboxes } = await node.inventory();
  await Promise.all(
    sandboxes.map(({ mark, generation }) => node.deleteSandbox({ sandboxId: mark.sandboxId, generation })),
  );
}
