/** The official E2B SDK, unchanged, pointed at a real platform by address (URL mode), and a sandbox to work in. */
import { Sandbox, type SandboxOpts } from 'e2b';
import { Platform } from './platform.ts';

export interface E2bRig {
  readonly platform: Platform;
  readonly options: SandboxOpts;
  readonly sandbox: Sandbox;
  close(): Promise<void>;
}

export async function openE2b(settings: SandboxOpts = {}): Promise<E2bRig> {
  const platform = await Platform.start();
  try {
    const { url } = platform.server;
    const options = { apiKey: platform.key.replace('atoll_', 'e2b_'), apiUrl: url, sandboxUrl: url };
    const sandbox = await Sandbox.create('base', { ...options, timeoutMs: 600_000, ...settings });
    return { platform, options, sandbox, close: () => platform.close() };
  } catch (error) {
    await platform.close();
    throw error;
  }
}

/** What the SDK knows of a sandbox's agent, for requests that it does not make itself. */
export function agentHeaders(sandbox: Sandbox): Record<string, string> {
  const { envdAccessToken = '' } = sandbox as unknown as { envdAccessToken?: string };
  return { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': envdAccessToken };
}
