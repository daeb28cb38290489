/** Sandboxes as E2B's clients see them. */
import { createHmac } from 'node:crypto';
import type { SandboxId } from '../../protocol/index.ts';
import type { ControlPort } from '../control-port.ts';
import { E2bError } from './e2b-error.ts';
import { envdVersion } from './envd-handler.ts';
import type { EnvdTokens } from './envd-tokens.ts';
import { egressOf } from './network-settings.ts';
import { marksOf, withoutMarks } from './sandbox-marks.ts';

export type SandboxSeen = Awaited<ReturnType<ControlPort['sandboxes']['get']>>;
export type E2bState = 'running' | 'paused';

/** Every client reads it, none uses it. */
const clientId = 'atoll';
/** Of one that never ends by itself. */
const never = '9999-12-31T23:59:59.000Z';

/** undefined: it is not there any more, or not yet. */
export function stateOf(seen: SandboxSeen): E2bState | undefined {
  switch (seen.state) {
    case 'running':
    case 'resuming':
      return 'running';
    case 'pausing':
    case 'paused':
      return 'paused';
    default:
      return undefined;
  }
}

export function notFound(sandboxId: string): E2bError {
  return new E2bError(404, `sandbox "${sandboxId}" not found`);
}

export interface ViewsOptions {
  readonly tokens: EnvdTokens;
  readonly secret: Uint8Array;
}

export class SandboxViews {
  readonly #options: ViewsOptions;

  constructor(options: ViewsOptions) {
    this.#options = options;
  }

  /** With what opens it: for whoever may use it. */
  opened(seen: SandboxSeen) {
    const marks = marksOf(seen.metadata);
    return {
      ...idsOf(seen),
      envdVersion,
      envdAccessToken: this.#options.tokens.give(seen.id),
      trafficAccessToken: marks?.isPublic === true ? null : this.trafficTokenOf(seen.id),
      // Clients know below which name they reach this server.
      domain: null,
    };
  }

  listed(seen: SandboxSeen) {
    const { cpuMillis, memoryBytes, diskBytes } = seen.limits;
    return {
      ...idsOf(seen),
      startedAt: seen.createdAt,
      endAt: seen.paused?.since ?? seen.expiresAt ?? never,
      state: stateOf(seen) ?? 'running',
      cpuCount: Math.max(1, Math.round(cpuMillis / 1000)),
      memoryMB: Math.round(memoryBytes / 2 ** 20),
      diskSizeMB: Math.round((diskBytes ?? 0) / 2 ** 20),
      envdVersion,
      metadata: withoutMarks(seen.metadata),
    };
  }

  detailed(seen: SandboxSeen) {
    const marks = marksOf(seen.metadata);
    return {
      ...this.listed(seen),
      envdAccessToken: this.#options.tokens.give(seen.id),
      domain: null,
      allowInternetAccess: seen.network.mode === 'full',
      network: {
        ...egressOf(seen.network),
        allowPublicTraffic: marks?.isPublic ?? false,
        ...(marks?.requestHost && { maskRequestHost: marks.requestHost }),
      },
      lifecycle: { onTimeout: seen.onExpiry === 'pause' ? 'pause' : 'kill', autoResume: seen.autoResume },
    };
  }

  /** Opens the ports of a sandbox that is not public. */
  trafficTokenOf(sandboxId: SandboxId): string {
    return createHmac('sha256', this.#options.secret).update(`traffic ${sandboxId}`).digest('hex').slice(0, 40);
  }
}

function idsOf(seen: SandboxSeen) {
  const alias = seen.name ?? undefined;
  return {
    sandboxID: seen.id,
    templateID: marksOf(seen.metadata)?.template ?? seen.template,
    clientID: clientId,
    ...(alias !== undefined && { alias }),
  };
}
