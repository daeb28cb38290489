/** Ports of a sandbox: what listens inside, and which of it is shown outside as a preview. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { defineRoute } from '../route.ts';
import { instant, none } from '../schemas.ts';
import { sandboxParams } from './sandboxes.ts';

export const portLimits = {
  /** Exposed at a time, of one sandbox. */
  exposures: 32,
  /** Requests and upgraded connections through previews at a time, of one sandbox. */
  previewRequests: 256,
  /** Connections into one sandbox at a time: previews, those that they keep for the next request, and tunnels. */
  connections: 1_024,
  /** Listening sockets in one list. */
  listed: 1_000,
} as const;

/** Where a preview's token may stand. */
export const previewToken = {
  header: 'Atoll-Preview-Token',
  query: 'atoll_preview_token',
  cookie: 'atoll_preview',
} as const;

const portParams = sandboxParams.extend({ port: z.coerce.number().int().min(1).max(65_535) });

const listeningPort = z.object({
  port: z.int(),
  family: z.union([z.literal(4), z.literal(6)]),
  address: z.string(),
  /** Inside the sandbox, where it is known. */
  pid: z.int().nullable(),
  /** As the process calls itself. */
  processName: z.string().nullable(),
});
export type ListeningPortView = z.output<typeof listeningPort>;

const exposureView = z.object({
  sandboxId: idSchema('sandbox'),
  port: z.int(),
  /** Needs no token. */
  public: z.boolean(),
  /** By host name, an origin of its own: for browsers. */
  url: z.string(),
  /** By path, below the API's own address: for programs. */
  pathUrl: z.string(),
  createdAt: instant,
});
export type ExposureView = z.output<typeof exposureView>;

const exposureWithToken = exposureView.extend({
  /** Also of a public port: it counts when the port is not public any more. */
  token: z.string(),
});

const portErrors = ['sandbox_not_found', 'stale_generation', 'lease_held', 'lease_lost'] as const;

export const listPorts = defineRoute({
  name: 'listPorts',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/ports',
  summary:
    'The TCP ports that listen inside, and those that are exposed. Of a sandbox that does not run, only the exposed ones.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: none,
  body: none,
  result: z.object({ listening: z.array(listeningPort), exposed: z.array(exposureView) }),
  errors: ['sandbox_not_found', 'stale_generation', 'sandbox_unavailable', 'node_unavailable'],
});

export const exposePort = defineRoute({
  name: 'exposePort',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/ports/:port/expose',
  summary:
    'Shows a port outside, and answers with its addresses and token. Of a port that is exposed: the same token again, and `public` changed where it is given. It stays exposed while the sandbox is stopped, and is never a reason to start it.',
  scope: 'sandboxes:write',
  params: portParams,
  query: none,
  body: z.strictObject({
    /** Everybody who knows the address may come. */
    public: z.boolean().optional(),
  }),
  result: exposureWithToken,
  errors: [...portErrors, 'limit_exceeded'],
});

export const unexposePort = defineRoute({
  name: 'unexposePort',
  method: 'DELETE',
  path: '/v1/sandboxes/:sandboxId/ports/:port/expose',
  summary:
    'Ends the preview of a port: its token is refused and its open connections are cut. Of a port that is not exposed: succeeds.',
  scope: 'sandboxes:write',
  params: portParams,
  query: none,
  body: none,
  result: none,
  status: 204,
  errors: [...portErrors],
});

export const rotatePortToken = defineRoute({
  name: 'rotatePortToken',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/ports/:port/rotate',
  summary: 'Gives the preview of a port another token. The earlier one is refused at once, and what it opened is cut.',
  scope: 'sandboxes:write',
  params: portParams,
  query: none,
  body: none,
  result: exposureWithToken,
  errors: [...portErrors, 'port_not_exposed'],
});
