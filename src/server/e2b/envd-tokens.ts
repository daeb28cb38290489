/**
 * The token that opens a sandbox's agent. It is derived from the sandbox's id and a secret of the server, so it is the same after a pause, a resume and a
 * restart of the server, and nothing is stored.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { SandboxId } from '../../protocol/index.ts';

/** Sandboxes whose token was given out lately: a signed address may name none, and is then tried with theirs. */
const recentMax = 1_000;

export class EnvdTokens {
  readonly #secret: Uint8Array;
  /** The newest last. */
  readonly #recent = new Set<SandboxId>();

  constructor(secret: Uint8Array) {
    this.#secret = secret;
  }

  envdTokenOf(sandboxId: SandboxId): string {
    return createHmac('sha256', this.#secret).update(`envd ${sandboxId}`).digest('hex').slice(0, 40);
  }

  /** The token for whoever may have it. */
  give(sandboxId: SandboxId): string {
    this.#recent.delete(sandboxId);
    this.#recent.add(sandboxId);
    if (this.#recent.size > recentMax) this.#recent.delete(this.#recent.values().next().value!);
    return this.envdTokenOf(sandboxId);
  }

  /** `header` is what stands in `X-Access-Token`. */
  verifyEnvdAccess(sandboxId: SandboxId, header: string | undefined): boolean {
    return header !== undefined && timingSafeEqual(hashOf(header), hashOf(this.envdTokenOf(sandboxId)));
  }

  /** Whether it is one of those. */
  isRecent(sandboxId: SandboxId): boolean {
    return this.#recent.has(sandboxId);
  }

  /** The newest first. */
  recent(): readonly SandboxId[] {
    return [...this.#recent].reverse();
  }
}

function hashOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
