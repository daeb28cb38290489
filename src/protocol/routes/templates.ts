/** Templates: what sandboxes start from, and builds of them, which go on whoever disconnects. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { defineRoute } from '../route.ts';
import { instant, none } from '../schemas.ts';

export const templateLimits = {
  definitionLength: 256 * 1024,
  packages: 500,
  contextBytes: 512 * 1024 * 1024,
} as const;

const templateName = z
  .string()
  .regex(
    /^[a-z0-9][a-z0-9_-]{0,62}(:[A-Za-z0-9_][A-Za-z0-9._-]{0,62})?$/,
    'It is 1 to 63 of a-z, 0-9, "_" and "-", and perhaps ":" and a tag.',
  );
const ownName = templateName.refine((name) => name !== 'host', 'host is the machine itself.');
const command = z.union([z.array(z.string()), z.string()]);

export const templateView = z.object({
  name: z.string(),
  /** Of what the name leads to now; null for `host`. */
  id: idSchema('template').nullable(),
  from: z.string(),
  env: z.record(z.string(), z.string()),
  workdir: z.string(),
  user: z.string(),
  start: z
    .object({
      command,
      ready: z.object({ port: z.int().nullable(), command: command.nullable(), timeoutMs: z.int() }),
    })
    .nullable(),
  sizeBytes: z.int().nullable(),
  createdAt: instant.nullable(),
  /** How many there are of it; null for `host`. */
  sandboxes: z.int().nullable(),
});
export type TemplateView = z.output<typeof templateView>;

export const buildView = z.object({
  id: idSchema('build'),
  name: z.string(),
  state: z.enum(['running', 'succeeded', 'failed']),
  startedAt: instant,
  endedAt: instant.nullable(),
  templateId: idSchema('template').nullable(),
  error: z.object({ code: z.string(), message: z.string(), details: z.record(z.string(), z.unknown()) }).nullable(),
});
export type BuildView = z.output<typeof buildView>;

/** `cursor` goes on after it. */
export const buildLogItem = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('step'),
    step: z.int(),
    steps: z.int(),
    text: z.string(),
    cached: z.boolean(),
    cursor: z.string(),
  }),
  z.object({ kind: z.literal('log'), text: z.string(), cursor: z.string() }),
  z.object({ kind: z.literal('dropped'), cursor: z.string() }),
  z.object({ kind: z.literal('ended'), build: buildView, cursor: z.string() }),
]);
export type BuildLogItem = z.output<typeof buildLogItem>;

const buildParams = z.strictObject({ buildId: idSchema('build') });
const buildErrors = ['build_not_found', 'node_unavailable'] as const;

export const buildTemplate = defineRoute({
  name: 'buildTemplate',
  method: 'POST',
  path: '/v1/template-builds',
  summary:
    'Begins to build a template and answers at once. The name leads to it when the build has succeeded; a build that fails leaves nothing. The same thing asked for while it is being built is that build.',
  scope: 'sandboxes:write',
  params: none,
  query: none,
  body: z.strictObject({
    name: ownName,
    source: z.discriminatedUnion('kind', [
      z.strictObject({ kind: z.literal('base') }),
      z.strictObject({
        kind: z.literal('debian'),
        packages: z.array(z.string().max(200)).max(templateLimits.packages),
      }),
      z.strictObject({
        kind: z.literal('definition'),
        text: z.string().max(templateLimits.definitionLength),
        /** Of the files that its `copy` steps take. */
        contextId: idSchema('context').optional(),
      }),
      /** Of a registry, as docker names it; needs the scope admin, because the node goes there. */
      z.strictObject({ kind: z.literal('image'), reference: z.string().min(1).max(1_000) }),
      /** What `docker save` writes, or an image layout in a tar. */
      z.strictObject({ kind: z.literal('imageArchive'), contextId: idSchema('context') }),
    ]),
  }),
  result: buildView,
  status: 201,
  errors: ['invalid_definition', 'limit_exceeded', 'node_unavailable', 'outcome_unknown'],
});

export const uploadTemplateContext = defineRoute({
  name: 'uploadTemplateContext',
  method: 'POST',
  path: '/v1/template-contexts',
  summary: 'Takes a tar of the files that a definition copies from, for one build.',
  scope: 'sandboxes:write',
  params: none,
  query: none,
  body: none,
  bodyKind: 'bytes',
  bodyLimitBytes: templateLimits.contextBytes,
  result: z.object({ id: idSchema('context'), bytes: z.int() }),
  status: 201,
  errors: ['limit_exceeded', 'insufficient_storage', 'node_unavailable', 'outcome_unknown'],
});

export const getTemplateBuild = defineRoute({
  name: 'getTemplateBuild',
  method: 'GET',
  path: '/v1/template-builds/:buildId',
  summary: 'One build, running or ended. The newest 100 of a node are known.',
  scope: 'sandboxes:read',
  params: buildParams,
  query: none,
  body: none,
  result: buildView,
  errors: [...buildErrors],
});

export const readTemplateBuildLog = defineRoute({
  name: 'readTemplateBuildLog',
  method: 'GET',
  path: '/v1/template-builds/:buildId/log',
  summary:
    'What a build said. With `Accept: text/event-stream` replay and then live until it has ended, each item with its cursor as id; otherwise what there is now.',
  scope: 'sandboxes:read',
  params: buildParams,
  query: z.strictObject({
    cursor: z
      .string()
      .regex(/^\d{1,15}$/)
      .optional(),
  }),
  body: none,
  result: z.object({ items: z.array(buildLogItem) }),
  errors: [...buildErrors],
});

export const cancelTemplateBuild = defineRoute({
  name: 'cancelTemplateBuild',
  method: 'POST',
  path: '/v1/template-builds/:buildId/cancel',
  summary: 'Ends a build that runs, and answers when nothing is left of it. One that has ended stays as it is.',
  scope: 'sandboxes:write',
  params: buildParams,
  query: none,
  body: none,
  result: buildView,
  errors: [...buildErrors, 'outcome_unknown'],
});

export const listTemplates = defineRoute({
  name: 'listTemplates',
  method: 'GET',
  path: '/v1/templates',
  summary: 'Templates of the team by name, and `host`.',
  scope: 'sandboxes:read',
  params: none,
  query: none,
  body: none,
  result: z.object({ items: z.array(templateView) }),
  errors: ['node_unavailable'],
});

export const getTemplate = defineRoute({
  name: 'getTemplate',
  method: 'GET',
  path: '/v1/templates/:name',
  summary: 'One template by its name.',
  scope: 'sandboxes:read',
  params: z.strictObject({ name: templateName }),
  query: none,
  body: none,
  result: templateView,
  errors: ['template_not_found', 'template_not_built', 'node_unavailable'],
});

export const removeTemplate = defineRoute({
  name: 'removeTemplate',
  method: 'DELETE',
  path: '/v1/templates/:name',
  summary: 'Takes the name away. The files go when no sandbox uses them; sandboxes go on. An unknown name succeeds.',
  scope: 'sandboxes:write',
  params: z.strictObject({ name: ownName }),
  query: none,
  body: none,
  result: none,
  status: 204,
  errors: ['node_unavailable', 'outcome_unknown'],
});
