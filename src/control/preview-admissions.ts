/**
 * Who is in a preview now. Whoever was let in is heard of here until it leaves, so that taking an exposure back also ends what it let in.
 *
 * Invariant: an admission is in #inside exactly while its request or connection goes on, so a sandbox never has more of them than the limit.
 */
import { PlatformError, portLimits, type SandboxId } from '../protocol/index.ts';
import type { ExposureKey } from '../store/index.ts';

interface Inside {
  readonly port: number;
  readonly revoked: AbortController;
}

export class PreviewAdmissions {
  readonly #inside = new Map<SandboxId, Set<Inside>>();

  enter({ sandboxId, port }: ExposureKey): { readonly revoked: AbortSignal; leave(): void } {
    const others = this.#inside.get(sandboxId) ?? new Set();
    if (others.size >= portLimits.previewRequests) {
      const message = `${portLimits.previewRequests} requests to previews of this sandbox are open; no more are taken.`;
      throw new PlatformError('limit_exceeded', message);
    }
    const inside: Inside = { port, revoked: new AbortController() };
    this.#inside.set(sandboxId, others.add(inside));
    return { revoked: inside.revoked.signal, leave: () => this.#leave(sandboxId, inside) };
  }

  /** Everybody inside through this exposure is told to leave. */
  revoke({ sandboxId, port }: ExposureKey): void {
    for (const inside of [...(this.#inside.get(sandboxId) ?? [])]) {
      if (inside.port === port) inside.revoked.abort();
    }
  }

  #leave(sandboxId: SandboxId, inside: Inside): void {
    const others = this.#inside.get(sandboxId);
    others?.delete(inside);
    if (others?.size === 0) this.#inside.delete(sandboxId);
  }
}
