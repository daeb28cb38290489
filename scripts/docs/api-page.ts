/** The readable form of the OpenAPI document: one section per route, fields as tables. */
import { code, generatedNote, page, table } from './markdown.ts';

export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly format?: string;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly default?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly maxItems?: number;
  readonly description?: string;
}

interface Parameter {
  readonly $ref?: string;
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description?: string;
  readonly schema?: Schema;
}

interface Content {
  readonly $ref?: string;
  readonly description?: string;
  readonly content?: Readonly<Record<string, { readonly schema?: Schema }>>;
}

interface Operation {
  readonly summary?: string;
  readonly description?: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: Content;
  readonly responses?: Readonly<Record<string, Content>>;
  readonly 'x-scope'?: string;
}

export interface OpenApiDocument {
  readonly info: { readonly title: string; readonly description?: string };
  readonly paths?: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

/** Bounds above this say only that a number is an integer. */
const widestBound = Number.MAX_SAFE_INTEGER;

export function renderApiPage(document: OpenApiDocument): string {
  const routes = Object.entries(document.paths ?? {}).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
  const codesEverywhere = routes
    .map((route) => errorCodesOf(document, route.operation))
    .reduce((common, codes) => common.filter((name) => codes.includes(name)));
  const headers = uniqueByName(routes.flatMap((route) => parametersOf(document, route.operation).filter(isHeader)));
  return page([
    generatedNote,
    '# The HTTP API',
    document.info.description ?? '',
    'The same as an OpenAPI 3.1 document: [openapi.json](openapi.json). What each refusal means: [errors.md](errors.md).',
    `Any route may refuse with ${codesEverywhere.map(code).join(', ')}; what it may refuse with besides stands below it.`,
    ...(headers.length === 0 ? [] : ['A route that changes something takes these headers, none of them required:']),
    table(
      ['header', 'type', 'means'],
      headers.map((header) => [code(header.name), ...describe(document, header)]),
    ),
    ...routes.flatMap((route) => renderRoute(document, route, codesEverywhere)),
    ...Object.entries(document.components?.['schemas'] ?? {})
      .filter(([name]) => name !== 'Error')
      .flatMap(([name, schema]) => [`## ${name}`, fieldTable(document, schema as Schema)]),
  ]);
}

interface Route {
  readonly path: string;
  readonly method: string;
  readonly operation: Operation;
}

function renderRoute(document: OpenApiDocument, route: Route, codesEverywhere: readonly string[]): string[] {
  const { operation } = route;
  const parameters = parametersOf(document, operation).filter((parameter) => !isHeader(parameter));
  const rows = parameters.map((parameter) => {
    const [type, meaning] = describe(document, parameter);
    return [code(parameter.name), parameter.in, type, parameter.required ? 'required' : '', meaning];
  });
  const codes = errorCodesOf(document, operation).filter((name) => !codesEverywhere.includes(name));
  const scope = operation['x-scope'];
  return [
    `## ${route.method} ${route.path}`,
    operation.summary ?? '',
    operation.description ?? '',
    scope === undefined ? '' : `Needs the scope ${code(scope)}.`,
    table(['parameter', 'in', 'type', '', 'means'], rows),
    ...renderContent(document, 'Body', operation.requestBody),
    ...Object.entries(operation.responses ?? {})
      .filter(([status]) => status.startsWith('2'))
      .flatMap(([status, response]) => renderSuccess(document, status, resolve(document, response))),
    codes.length === 0 ? '' : `Refusals: ${codes.map(code).join(', ')}.`,
  ];
}

function renderSuccess(document: OpenApiDocument, status: string, response: Content): string[] {
  const fields = renderContent(document, status, response);
  return fields.length > 0 ? fields : [`**${status}** ${response.description ?? ''}`];
}

function parametersOf(document: OpenApiDocument, operation: Operation): readonly Parameter[] {
  return (operation.parameters ?? []).map((parameter) => resolve(document, parameter));
}

function isHeader(parameter: Parameter): boolean {
  return parameter.in === 'header';
}

function uniqueByName(parameters: readonly Parameter[]): readonly Parameter[] {
  return [...new Map(parameters.map((parameter) => [parameter.name, parameter])).values()];
}

function describe(document: OpenApiDocument, parameter: Parameter): [type: string, meaning: string] {
  const schema = parameter.schema ?? {};
  return [typeOf(document, schema), parameter.description ?? schema.description ?? ''];
}

/** The descriptions of refusals name their codes, each as `code`: meaning. */
function errorCodesOf(document: OpenApiDocument, operation: Operation): readonly string[] {
  return Object.entries(operation.responses ?? {})
    .filter(([status]) => !status.startsWith('2'))
    .flatMap(([, response]) => [...(resolve(document, response).description ?? '').matchAll(/^`(\w+)`:/gm)])
    .flatMap(([, name]) => name ?? []);
}

function renderContent(document: OpenApiDocument, title: string, content: Content | undefined): string[] {
  return Object.entries(content?.content ?? {}).flatMap(([mediaType, { schema }]) => {
    if (schema === undefined) return [`**${title}** ${code(mediaType)}`];
    const rows = schema.$ref === undefined ? fieldRows(document, schema) : [];
    const type = rows.length === 0 ? typeOf(document, schema) : '';
    return [
      `**${title}** ${code(mediaType)} ${type}`.trimEnd(),
      fieldTable(document, schema.$ref === undefined ? schema : {}),
    ];
  });
}

function fieldTable(document: OpenApiDocument, schema: Schema): string {
  return table(['field', 'type', '', 'means'], fieldRows(document, schema));
}

function fieldRows(document: OpenApiDocument, schema: Schema): string[][] {
  return Object.entries(schema.properties ?? {}).map(([name, field]) => [
    code(name),
    typeOf(document, field),
    schema.required?.includes(name) ? 'required' : '',
    resolve(document, field).description ?? '',
  ]);
}

function typeOf(document: OpenApiDocument, schema: Schema): string {
  const name = componentName(schema);
  if (name !== undefined) return `[${name}](#${name.toLowerCase()})`;
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives !== undefined) {
    return (
      [...new Set(alternatives.map((alternative) => typeOf(document, alternative)))].join(' or ') + defaultOf(schema)
    );
  }
  if (schema.const !== undefined) return code(JSON.stringify(schema.const));
  if (schema.enum !== undefined)
    return schema.enum.map((value) => code(JSON.stringify(value))).join(', ') + defaultOf(schema);
  if (schema.type === 'array')
    return `array of ${typeOf(document, schema.items ?? {})}${boundsOf(schema)}${defaultOf(schema)}`;
  if (schema.properties !== undefined) return `object with ${Object.keys(schema.properties).map(code).join(', ')}`;
  const type = schema.type === undefined ? 'any value' : [schema.type].flat().join(' or ');
  return `${type}${schema.format === undefined ? '' : ` (${schema.format})`}${boundsOf(schema)}${defaultOf(schema)}`;
}

function boundsOf(schema: Schema): string {
  const isBound = (bound: number | undefined) => bound !== undefined && Math.abs(bound) < widestBound;
  const from = [schema.minimum, schema.minLength].find(isBound);
  const to = [schema.maximum, schema.maxLength, schema.maxItems].find(isBound);
  if (from === undefined && to === undefined) return '';
  const unit = schema.type === 'string' ? ' characters' : schema.type === 'array' ? ' items' : '';
  if (to === undefined) return `, at least ${from}${unit}`;
  return from === undefined ? `, at most ${to}${unit}` : `, ${from} to ${to}${unit}`;
}

function defaultOf(schema: Schema): string {
  return schema.default === undefined ? '' : `, default ${code(JSON.stringify(schema.default))}`;
}

function componentName(schema: Schema): string | undefined {
  return /^#\/components\/schemas\/([^/]+)$/.exec(schema.$ref ?? '')?.[1];
}

function resolve<Kind extends { readonly $ref?: string }>(document: OpenApiDocument, value: Kind): Kind {
  const [, section, name] = /^#\/components\/([^/]+)\/([^/]+)$/.exec(value.$ref ?? '') ?? [];
  if (section === undefined || name === undefined) return value;
  return (document.components?.[section]?.[name] ?? value) as Kind;
}
