/**
 * Background processes of a checkout by name: processes of its sandbox called `bg-NAME`. Starting one replaces the one that runs; a preview
 * belongs to its port, so it stays. Ready means that a connection to its port stays open for a moment; one that ends before is told with the
 * end of its output.
 */
import { isPlatformError, PlatformError } from '../protocol/index.ts';
import type { Process, Sandbox } from '../sdk/index.ts';
import { type BackgroundDefinition, backgroundName, type Definition } from './definition.ts';

const prefix = 'bg-';
const stopGraceMs = 5_000;
const readyTimeoutMs = 60_000;
/** Without a port: it must live so long to count as started. */
const settleMs = 300;
const tailMaxLength = 4_000;

export interface StartedBackground {
  readonly name: string;
  readonly process: Process;
  readonly url: string | null;
}

/** Refuses a name that cannot be one; call it before anything else. */
export function checkBackgroundName(name: string): void {
  const { success, error } = backgroundName.safeParse(name);
  if (!success) throw new PlatformError('invalid_request', `"${name}": ${error.issues[0]!.message}`);
}

/** What the definition says of it, or what is given instead. */
export function backgroundOf(
  definition: Definition,
  name: string,
  given: { readonly run?: string; readonly port?: number },
): BackgroundDefinition {
  checkBackgroundName(name);
  const known = Object.hasOwn(definition.background, name) ? definition.background[name] : undefined;
  const run = given.run ?? known?.run;
  if (run === undefined) {
    const names = Object.keys(definition.background).join(', ') || 'none';
    throw new PlatformError(
      'invalid_request',
      `The definition has no background process "${name}" (it has: ${names}).`,
    );
  }
  const port = given.port ?? known?.port;
  return { run, env: known?.env ?? {}, ...(port !== undefined && { port }) };
}

/** The handle carries the lease. */
export async function startBackground(
  sandbox: Sandbox,
  options: { readonly name: string; readonly definition: Definition; readonly background: BackgroundDefinition },
): Promise<StartedBackground> {
  const { name, definition, background } = options;
  await stopBackground(sandbox, name);
  const process = await sandbox.processes.start(background.run, {
    name: prefix + name,
    cwd: definition.directory,
    env: { ...definition.env, ...background.env },
  });
  try {
    await untilReady(process, background.port);
  } catch (error) {
    throw await diedEarly(error, { name, process });
  }
  const exposure = background.port === undefined ? undefined : await sandbox.ports.expose(background.port);
  return { name, process, url: exposure?.url ?? null };
}

/** Answers whether there was one. */
export async function stopBackground(sandbox: Sandbox, name: string): Promise<boolean> {
  const process = await findBackground(sandbox, name);
  if (process === undefined) return false;
  if (process.view.running) {
    await process.kill({ graceMs: stopGraceMs });
    await process.wait({ for: 'tree' });
  }
  await process.remove();
  return true;
}

export async function findBackground(sandbox: Sandbox, name: string): Promise<Process | undefined> {
  checkBackgroundName(name);
  try {
    return await sandbox.processes.get(prefix + name);
  } catch (error) {
    if (isPlatformError(error, 'process_not_found')) return undefined;
    throw error;
  }
}

export async function listBackground(sandbox: Sandbox): Promise<readonly { name: string; process: Process }[]> {
  const found: { name: string; process: Process }[] = [];
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page = await sandbox.processes.list(cursor === undefined ? {} : { cursor });
    for (const process of page.items) {
      if (process.name?.startsWith(prefix)) found.push({ name: process.name.slice(prefix.length), process });
    }
    cursor = page.nextCursor;
  }
  return found;
}

async function untilReady(process: Process, port: number | undefined): Promise<void> {
  if (port !== undefined) return await process.waitForPort(port, { timeoutMs: readyTimeoutMs });
  try {
    await process.wait({ timeoutMs: settleMs });
  } catch (error) {
    if (isPlatformError(error, 'wait_timeout')) return;
    throw error;
  }
  if (process.view.exit?.exitCode !== 0) throw new PlatformError('output_ended', 'It ended at once.');
}

async function diedEarly(
  error: unknown,
  given: { readonly name: string; readonly process: Process },
): Promise<unknown> {
  if (!isPlatformError(error, 'output_ended', 'wait_timeout')) return error;
  const page = await given.process.readOutput().catch(() => undefined);
  const said = (page?.items ?? []).map((item) => (item.kind === 'output' ? item.data : '')).join('');
  const tail = said.slice(-tailMaxLength).trimEnd();
  const message = `The background process "${given.name}" is not ready: ${error.message}${tail === '' ? '' : `\n${tail}`}`;
  return new PlatformError(error.code, message, { details: { name: given.name, tail }, cause: error });
}
