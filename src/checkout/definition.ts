/**
 * `atoll.yml`: what the sandbox of a checkout is made from. Every mistake in it is told with line and column.
 *
 *   template: host
 *   limits: { memory: 2g, cpus: 2, processes: 500 }
 *   expires: 8h
 *   directory: /workspace
 *   env: { NODE_ENV: test }
 *   envFiles: [.env.sandbox]
 *   setup: [npm ci]
 *   ports: [3000]
 *   background: { web: { run: npm run dev, port: 3000 } }
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isMap, isScalar, LineCounter, type Node, parseDocument } from 'yaml';
import { z } from 'zod';
import { PlatformError } from '../protocol/index.ts';
import { noConfig, shortHash } from './identity.ts';

/** Rules of a background process's name; also checked before anything goes over the network. */
export const backgroundName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9-]{0,39}$/, 'A name is 1 to 40 of a-z, 0-9 and "-", and begins with a letter or digit.');

const port = z.int().min(1).max(65_535);
const variableName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'A variable is letters, digits and "_".');
const duration = z
  .string()
  .regex(/^\d+(ms|s|m|h|d)$/, 'A time has a unit: 500ms, 30s, 5m, 2h, 7d.')
  .transform((text) => Number.parseInt(text, 10) * unitMs[/[a-z]+$/.exec(text)![0] as keyof typeof unitMs]);
const unitMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
const size = z
  .string()
  .regex(/^\d+[kmg]$/i, 'A size has a unit: 512m, 2g.')
  .transform((text) => Number.parseInt(text, 10) * 1024 ** ' kmg'.indexOf(text.at(-1)!.toLowerCase()));
const commandText = z.string().min(1).max(100_000);

const backgroundSchema = z.strictObject({
  run: commandText,
  port: port.optional(),
  env: z.record(variableName, z.coerce.string()).default({}),
});
const definitionSchema = z.strictObject({
  template: z.string().min(1).max(100).default('host'),
  limits: z
    .strictObject({
      memory: size.optional(),
      cpus: z.number().positive().max(1_000).optional(),
      processes: z.int().min(4).optional(),
    })
    .default({}),
  /** Of the sandbox, from its creation on. */
  expires: z.union([z.literal('never'), duration]).default('never'),
  directory: z
    .string()
    .regex(/^\/[^\0]+$/, 'It is an absolute path in the sandbox.')
    .default('/workspace'),
  env: z.record(variableName, z.coerce.string()).default({}),
  /** Local files of NAME=VALUE lines, from the root of the checkout. */
  envFiles: z.array(z.string().min(1)).max(16).default([]),
  setup: z.array(commandText).max(64).default([]),
  /** Of all steps together. */
  setupTimeout: duration.default(1_800_000),
  /** Shown outside as previews, behind a token. */
  ports: z.array(port).max(32).default([]),
  background: z.record(backgroundName, backgroundSchema).default({}),
});

export type BackgroundDefinition = z.output<typeof backgroundSchema>;
export interface Definition extends z.output<typeof definitionSchema> {
  /** Of what only a new sandbox takes on. The rest counts from the next command on. */
  readonly hash: string;
  /** Of the set-up steps, what they see, and the ports. */
  readonly setupHash: string;
}

const fileMaxBytes = 1024 * 1024;

export function loadDefinition(root: string, configPath: string): Definition {
  if (configPath === noConfig) return parseDefinition('', { name: 'atoll.yml', readEnvFile: () => '' });
  const readText = (path: string) => readLimited(join(root, path), path);
  return parseDefinition(readText(configPath), { name: configPath, readEnvFile: readText });
}

export function parseDefinition(
  text: string,
  options: { readonly name: string; readonly readEnvFile: (path: string) => string },
): Definition {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: true, prettyErrors: false });
  const [error] = document.errors;
  if (error !== undefined) throw invalid(options.name, lines.linePos(error.pos[0]), error.message);
  // Aliases are not followed further than this, so that a small file cannot become a large one.
  const parsed = definitionSchema.safeParse(document.toJS({ maxAliasCount: 100 }) ?? {});
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const path = issue!.path.map(String);
    const unknown = issue!.code === 'unrecognized_keys' ? issue!.keys[0] : undefined;
    const place = lines.linePos(offsetOf(document.contents, unknown === undefined ? path : [...path, unknown]));
    const known = unknown === undefined ? '' : ` Known here: ${knownKeys(path).join(', ')}.`;
    const where = path.length === 0 ? '' : `${path.join('.')}: `;
    throw invalid(options.name, place, `${where}${issue!.message}${known}`);
  }
  const fromFiles = parsed.data.envFiles.map((path) => parseEnvFile(options.readEnvFile(path), path));
  const definition = {
    ...parsed.data,
    env: Object.assign({}, ...fromFiles, parsed.data.env) as Record<string, string>,
  };
  const { template, limits, expires, setup, env, directory, ports } = definition;
  return {
    ...definition,
    hash: shortHash('definition', JSON.stringify({ template, limits, expires })),
    setupHash: shortHash('setup', JSON.stringify({ template, setup, env, directory, ports })),
  };
}

/** `NAME=VALUE` lines, with comments, quotes around values, and an `export` that is ignored. */
export function parseEnvFile(text: string, name: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [index, raw] of text.split(/\r?\n/).entries()) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    const match = /^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$/.exec(line);
    if (!match) throw invalid(name, { line: index + 1, col: 1 }, 'A line is NAME=VALUE.');
    const value = match[2]!;
    const quoted = /^(["'])(.*)\1$/.exec(value);
    found[match[1]!] = quoted ? quoted[2]! : value;
  }
  return found;
}

/** The place of a value; of a key, where there is no value, or nothing deeper. */
function offsetOf(contents: Node | null, path: readonly string[]): number {
  let node: Node | null = contents;
  let offset = contents?.range?.[0] ?? 0;
  for (const name of path) {
    if (isMap(node)) {
      const pair = node.items.find(({ key }) => isScalar(key) && String(key.value) === name);
      if (pair === undefined) return offset;
      offset = (pair.key as Node).range?.[0] ?? offset;
      node = pair.value as Node | null;
    } else {
      const items: unknown = (node as { items?: unknown } | null)?.items;
      node = Array.isArray(items) ? (items[Number(name)] as Node | null) : null;
      offset = node?.range?.[0] ?? offset;
    }
  }
  return offset;
}

function knownKeys(path: readonly string[]): readonly string[] {
  if (path.length === 0) return Object.keys(definitionSchema.shape);
  if (path[0] === 'limits') return ['memory', 'cpus', 'processes'];
  return Object.keys(backgroundSchema.shape);
}

function readLimited(path: string, name: string): string {
  let bytes: Buffer;
  try {
    bytes = readFileSync(path);
  } catch (cause) {
    throw new PlatformError('definition_invalid', `${name} cannot be read.`, { cause });
  }
  if (bytes.byteLength > fileMaxBytes) {
    throw new PlatformError('definition_invalid', `${name} is larger than ${fileMaxBytes} bytes.`);
  }
  return bytes.toString('utf8');
}

function invalid(name: string, place: { readonly line: number; readonly col: number }, message: string): PlatformError {
  const details = { file: name, line: place.line, column: place.col };
  return new PlatformError('definition_invalid', `${name}:${place.line}:${place.col}: ${message}`, { details });
}
