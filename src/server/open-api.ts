/** The OpenAPI 3.1 document, made from the route declarations. */
import { z } from 'zod';
import {
  type AnyRoute,
  commonErrors,
  conditionHeaders,
  type ErrorCode,
  errorCatalog,
  mutationErrors,
  routes,
} from '../protocol/index.ts';

type Json = Record<string, unknown>;

const bytesContent: Json = { 'application/octet-stream': { schema: { type: 'string', format: 'binary' } } };

export interface OpenApiDocument {
  readonly openapi: '3.1.0';
  readonly info: Json;
  readonly paths: Readonly<Record<string, Readonly<Record<string, Json>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Json>>; readonly securitySchemes: Json };
  readonly security: readonly Json[];
}

export function openApiDocument(options: { readonly version?: string } = {}): OpenApiDocument {
  const paths: Record<string, Record<string, Json>> = {};
  for (const route of Object.values(routes) as AnyRoute[]) {
    const path = route.path.replaceAll(/:(\w+)/g, '{$1}');
    paths[path] ??= {};
    paths[path][route.method.toLowerCase()] = describeRoute(route);
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Atoll',
      version: options.version ?? 'v1',
      description: 'Sandboxes that many agents can share. Errors are one shape; callers branch on `error.code`.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    security: [{ bearer: [] }, { apiKey: [] }],
    paths,
    components: {
      schemas: { Sandbox: schemaOf(routes.getSandbox.result), Error: errorSchema() },
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        apiKey: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
      },
    },
  };
}

function describeRoute(route: AnyRoute): Json {
  const takesBody = !isNone(route.body);
  return {
    operationId: route.name,
    summary: route.summary,
    tags: [route.path.split('/')[2]],
    'x-scope': route.scope,
    parameters: [
      ...parametersOf(route.params, 'path'),
      ...parametersOf(route.query, 'query'),
      ...(route.isMutation ? conditionParameters(route) : []),
    ],
    ...(route.bodyKind === 'bytes' && { requestBody: { required: false, content: bytesContent } }),
    ...(takesBody && {
      requestBody: {
        required: !route.body.safeParse({}).success,
        content: { 'application/json': { schema: schemaOf(route.body) } },
      },
    }),
    responses: { ...successOf(route), ...errorsOf(route) },
  };
}

function successOf(route: AnyRoute): Json {
  if (route.status === 204) return { 204: { description: 'Done.' } };
  if (route.resultKind === 'bytes') return { 200: { description: 'The bytes, as a stream.', content: bytesContent } };
  const schema =
    route.result === routes.getSandbox.result ? { $ref: '#/components/schemas/Sandbox' } : schemaOf(route.result);
  const content: Json = { 'application/json': { schema } };
  if (['listEvents', 'readProcessOutput', 'watchFiles'].includes(route.name))
    content['text/event-stream'] = { schema: { type: 'string' } };
  const success: Json = { [route.status]: { description: 'Done.', content } };
  if (route.name === 'createSandbox') success['200'] = { description: 'It was there already.', content };
  return success;
}

/** One response per status, which lists the codes that have it. */
function errorsOf(route: AnyRoute): Json {
  const codes = new Set<ErrorCode>([...commonErrors, ...(route.isMutation ? mutationErrors : []), ...route.errors]);
  const byStatus = Map.groupBy(codes, (code) => errorCatalog[code].status);
  const responses: Json = {};
  for (const [status, found] of byStatus) {
    responses[status] = {
      description: found.map((code) => `\`${code}\`: ${errorCatalog[code].meaning}`).join('\n\n'),
      content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
    };
  }
  return responses;
}

function parametersOf(schema: z.ZodType, place: 'path' | 'query'): Json[] {
  const { properties, required } = schemaOf(schema) as { properties?: Record<string, Json>; required?: string[] };
  return Object.entries(properties ?? {}).map(([name, property]) => ({
    name,
    in: place,
    required: place === 'path' || required?.includes(name) === true,
    schema: property,
    ...(property['type'] === 'array' && { style: 'form', explode: true }),
  }));
}

function conditionParameters(route: AnyRoute): Json[] {
  const count = { type: 'integer', minimum: 0 };
  return [
    {
      name: conditionHeaders.idempotencyKey,
      in: 'header',
      description: 'Makes a repeat harmless: the same key never takes effect twice.',
      schema: { type: 'string', minLength: 1, maxLength: 255, pattern: '^[ -~]+$' },
    },
    {
      name: conditionHeaders.leaseToken,
      in: 'header',
      description: 'Proves that the caller holds the lease.',
      schema: count,
    },
    {
      name: conditionHeaders.generation,
      in: 'header',
      description: 'The life of the sandbox that is meant; another one is refused.',
      schema: count,
    },
    {
      name: conditionHeaders.expectedVersion,
      in: 'header',
      description:
        route.ifMatch === 'etag'
          ? 'The etag that the file must still have, as it stood in the ETag.'
          : 'The version that must still be the current one, as it stood in the ETag.',
      schema: route.ifMatch === 'etag' ? { type: 'string' } : { type: 'string', pattern: '^("[0-9]+"|[0-9]+)$' },
    },
  ];
}

function errorSchema(): Json {
  return {
    type: 'object',
    required: ['error'],
    properties: {
      error: {
        type: 'object',
        required: ['code', 'message', 'details', 'requestId'],
        properties: {
          code: { type: 'string', enum: Object.keys(errorCatalog) },
          message: { type: 'string' },
          details: { type: 'object' },
          requestId: { type: 'string' },
        },
      },
    },
  };
}

/** As it stands on the wire, which is what goes into the schema: an id is a text there. */
function schemaOf(schema: z.ZodType): Json {
  const { $schema: _, ...json } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as Json;
  return json;
}

function isNone(schema: z.ZodType): boolean {
  return schema instanceof z.ZodObject && Object.keys(schema.shape).length === 0;
}
