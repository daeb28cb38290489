/** What a client asks for when it creates a sandbox, and what of it this platform does. Nothing is accepted and ignored. */
import { z } from 'zod';
import { type BodyOf, routes } from '../../protocol/index.ts';
import { parsePart } from '../invalid-request.ts';
import { E2bError, notSupported } from './e2b-error.ts';
import { egressSettings, policyOf } from './network-settings.ts';
import { withMarks } from './sandbox-marks.ts';
import { templateOf } from './template-names.ts';

const networkSettings = egressSettings.extend({
  allowPublicTraffic: z.boolean().nullish(),
  maskRequestHost: z.string().nullish(),
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
  mcp: z.unknown().optional(),
  volumeMounts: z.array(z.unknown()).nullish(),
});

type CreateBody = BodyOf<typeof routes.createSandbox>;

export function parseCreateBody(value: unknown, defaultTimeoutS: number): CreateBody {
  const asked = parsePart(createBody, 'body', value);
  const isPublic = asked.network?.allowPublicTraffic ?? true;
  refuseMissing(asked);
  const network = policyOf(asked.network ?? {}, asked.allow_internet_access ?? undefined);
  return parsePart(routes.createSandbox.body, 'body', {
    template: templateOf(asked.templateID),
    metadata: withMarks(asked.metadata ?? {}, { template: asked.templateID, isPublic }, 'kill'),
    env: asked.envVars ?? {},
    expiresInMs: timeoutMs(asked.timeout ?? defaultTimeoutS),
    ...(network !== undefined && { network }),
  }) as CreateBody;
}

/** Whole seconds, as clients send them. */
export function timeoutMs(seconds: number): number {
  if (!(seconds > 0)) throw new E2bError(400, 'Timeout must be greater than 0');
  return Math.ceil(seconds * 1000);
}

function refuseMissing(asked: z.output<typeof createBody>): void {
  if ((asked.volumeMounts ?? []).length > 0) throw notSupported('Volumes are');
  if (asked.iam !== undefined && asked.iam !== null) throw notSupported('Identity tokens (iam) are');
  if (asked.mcp !== undefined && asked.mcp !== null) throw notSupported('The MCP gateway (mcp) is');
  if (asked.network?.maskRequestHost) throw notSupported('maskRequestHost is');
  if ((asked.network?.httpsPorts ?? []).length > 0) throw notSupported('httpsPorts is');
  if (asked.secure === false) throw notSupported('A sandbox whose agent is open to everybody (secure: false) is');
  if (asked.autoPauseMemory === false && !asked.autoPause) {
    throw new E2bError(400, 'autoPauseMemory: false needs autoPause.');
  }
  if (asked.autoPause) throw notSupported('Pausing at the timeout (autoPause) is');
  if (asked.autoResume?.enabled) throw notSupported('Resuming by traffic (autoResume) is');
}
