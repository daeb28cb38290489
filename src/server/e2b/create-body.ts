/** What a client asks for when it creates a sandbox, and what of it this platform does. Nothing is accepted and ignored. */
import { z } from 'zod';
import { type BodyOf, routes } from '../../protocol/index.ts';
import { parsePart } from '../invalid-request.ts';
import { E2bError, notSupported } from './e2b-error.ts';
import { egressSettings, policyOf } from './network-settings.ts';
import { withMarks } from './sandbox-marks.ts';
import type { TemplateSource } from './template-names.ts';

const networkSettings = egressSettings.extend({
  allowPublicTraffic: z.boolean().nullish(),
  maskRequestHost: z
    .string()
    .max(260)
    .regex(/^[\x21-\x7e]*$/, 'It is a host name, maybe with a port.')
    .nullish(),
  httpsPorts: z.array(z.int()).nullish(),
});

const createBody = z.strictObject({
  templateID: z.string().min(1).max(200),
  metadata: z.record(z.string(), z.string()).nullish(),
  envVars: z.record(z.string(), z.string()).nullish(),
  timeout: z.number().nullish(),
  /** Of the first generation: the agent is always behind a token. */
  secure: z.boolean().nullish(),
  autoPause: z.boolean().nullish(),
  autoPauseMemory: z.boolean().nullish(),
  autoResume: z.object({ enabled: z.boolean().nullish() }).nullish(),
  allow_internet_access: z.boolean().nullish(),
  network: networkSettings.nullish(),
  iam: z.unknown().optional(),
  /** The client starts the gateway itself, as a command; there is nothing for a server to do. */
  mcp: z.unknown().optional(),
  volumeMounts: z.array(z.unknown()).nullish(),
});

type CreateBody = BodyOf<typeof routes.createSandbox>;

export type WantedSandbox = z.output<typeof createBody> & { readonly timeout: number };

export function parseCreateBody(value: unknown, defaultTimeoutS: number): WantedSandbox {
  const asked = parsePart(createBody, 'body', value);
  refuseMissing(asked);
  return { ...asked, timeout: asked.timeout ?? defaultTimeoutS };
}

export function createBodyOf(asked: WantedSandbox, source: TemplateSource): CreateBody {
  const marks = {
    template: asked.templateID,
    isPublic: asked.network?.allowPublicTraffic ?? true,
    requestHost: asked.network?.maskRequestHost || null,
  };
  const network = policyOf(asked.network ?? {}, asked.allow_internet_access ?? undefined);
  return parsePart(routes.createSandbox.body, 'body', {
    ...source,
    metadata: withMarks(asked.metadata ?? {}, marks, asked.autoPause ? 'pause' : 'kill'),
    ...(asked.envVars && { env: asked.envVars }),
    expiresInMs: timeoutMs(asked.timeout),
    onExpiry: asked.autoPause ? 'pause' : 'stop',
    autoResume: asked.autoResume?.enabled ?? false,
    ...(network !== undefined && { network }),
  });
}

/** Whole seconds, as clients send them. */
export function timeoutMs(seconds: number): number {
  if (!(seconds > 0)) throw new E2bError(400, 'Timeout must be greater than 0');
  return Math.ceil(seconds * 1000);
}

function refuseMissing(asked: z.output<typeof createBody>): void {
  if ((asked.volumeMounts ?? []).length > 0) throw notSupported('Volumes are');
  if (asked.iam !== undefined && asked.iam !== null) throw notSupported('Identity tokens (iam) are');
  if ((asked.network?.httpsPorts ?? []).length > 0) throw notSupported('httpsPorts is');
  if (asked.secure === false) throw notSupported('A sandbox whose agent is open to everybody (secure: false) is');
  if (asked.autoPauseMemory === false && !asked.autoPause) {
    throw new E2bError(400, 'autoPauseMemory: false needs autoPause.');
  }
  if (asked.autoPauseMemory === false && asked.autoResume?.enabled) {
    throw new E2bError(400, 'autoPauseMemory: false cannot be resumed by traffic.');
  }
  if (asked.autoPauseMemory === false) throw notSupported('Pausing at the timeout without the memory is');
}
