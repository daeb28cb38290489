/** Starts what rows measure: a platform as a user would, the raw path, the spawning peer. All of it ends with the row. */
import { join } from 'node:path';
import { ensureNativeInit } from '../src/app/index.ts';
import type { Sandbox } from '../src/sdk/index.ts';
import { Platform, type PlatformOptions } from '../test/support/platform.ts';
import { BareHttp } from './bare-http.ts';
import { HttpClient, type ServerAddress } from './http-client.ts';
import { forEachAtOnce } from './interleave.ts';
import type { Scope } from './row.ts';
import { Worker } from './worker.ts';

/** Enough to keep both sides busy, and no more than a client library opens. */
const requestsAtOnce = 16;

export async function startPlatform(scope: Scope, options: PlatformOptions = {}): Promise<Platform> {
  const platform = await Platform.start({ ...options, unwatched: true });
  scope.stack.defer(() => platform.close());
  return platform;
}

export function addressOf(platform: Platform): ServerAddress {
  return { url: platform.server.url, key: platform.key };
}

export function openHttp(scope: Scope, platform: Platform): HttpClient {
  const client = new HttpClient(addressOf(platform));
  scope.stack.defer(() => client.close());
  return client;
}

export function openBareHttp(scope: Scope, platform: Platform): BareHttp {
  const bare = new BareHttp(addressOf(platform));
  scope.stack.defer(() => bare.close());
  return bare;
}

export async function startRaw(scope: Scope): Promise<Worker> {
  const worker = Worker.start(scope, 'raw-sandboxes.ts');
  await worker.run('open', {
    directory: join(scope.directory, `raw-${worker.pid}`),
    layersDirectory: layersDirectoryOf(scope.directory),
    initProgram: await ensureNativeInit(),
  });
  return worker;
}

export function startSpawnPeer(scope: Scope): Worker {
  return Worker.start(scope, 'spawn-peer.mjs');
}

/** A sandbox, and a process that uses it through the SDK. */
export async function startSdkLoad(scope: Scope): Promise<{ readonly platform: Platform; readonly load: Worker }> {
  const platform = await startPlatform(scope);
  const sandbox = await platform.client.sandboxes.create();
  const load = Worker.start(scope, 'sdk-load.ts');
  await load.run('connect', { address: addressOf(platform), sandboxId: sandbox.id });
  return { platform, load };
}

export async function startPlainPeer(scope: Scope): Promise<Worker> {
  const worker = Worker.start(scope, 'plain-peer.mjs');
  await worker.run('serve');
  return worker;
}

/** Templates are built once for the whole run; servers find them through ATOLL_LAYERS. */
export function layersDirectoryOf(directory: string): string {
  return join(directory, 'layers');
}

export async function createMany(platform: Platform, count: number): Promise<Sandbox[]> {
  const sandboxes: Sandbox[] = [];
  await forEachAtOnce(Array.from({ length: count }).keys(), requestsAtOnce, async () => {
    sandboxes.push(await platform.client.sandboxes.create());
  });
  return sandboxes;
}
