/** What an image says about the commands that run in it, read from its configuration. */
import { z } from 'zod';
import { parseDocument } from './manifests.ts';

export interface ImageConfig {
  readonly env: Readonly<Record<string, string>>;
  /** Absolute; `/` where the image names none. */
  readonly workdir: string;
  /** As the image says it: a name or number, with `:group` or without. Empty: root. */
  readonly user: string;
  readonly entrypoint: readonly string[];
  readonly cmd: readonly string[];
}

export interface ParsedConfig {
  readonly config: ImageConfig;
  /** The digest of each layer as a plain tar, lowest first. */
  readonly diffIds: readonly string[];
  readonly os: string;
  readonly architecture: string;
}

const variablesMax = 1_000;
const wordsMax = 1_000;
const textMax = 131_072;

const words = z
  .array(z.string().max(textMax).refine(withoutNul, 'has a NUL in it'))
  .max(wordsMax)
  .nullish()
  .transform((value) => value ?? []);

const configSchema = z.object({
  os: z.string().max(64).default(''),
  architecture: z.string().max(64).default(''),
  config: z
    .object({
      Env: z.array(z.string().max(textMax).refine(withoutNul, 'has a NUL in it')).max(variablesMax).nullish(),
      WorkingDir: z.string().max(4_096).refine(withoutNul, 'has a NUL in it').nullish(),
      User: z.string().max(256).refine(withoutNul, 'has a NUL in it').nullish(),
      Entrypoint: words,
      Cmd: words,
    })
    .nullish(),
  rootfs: z.object({
    type: z.literal('layers'),
    diff_ids: z.array(z.string().regex(/^sha256:[0-9a-f]{64}$/, 'is no SHA-256 digest')).nullable(),
  }),
});

export function parseImageConfig(bytes: Buffer): ParsedConfig {
  const parsed = parseDocument(bytes, { schema: configSchema, what: 'configuration' });
  const { config } = parsed;
  const workdir = config?.WorkingDir || '/';
  return {
    config: {
      env: environmentOf(config?.Env ?? []),
      workdir: workdir.startsWith('/') ? workdir : `/${workdir}`,
      user: config?.User ?? '',
      entrypoint: config?.Entrypoint ?? [],
      cmd: config?.Cmd ?? [],
    },
    diffIds: parsed.rootfs.diff_ids ?? [],
    os: parsed.os,
    architecture: parsed.architecture,
  };
}

/** Of a variable that is named twice the last counts, as in a shell. A line without a name says nothing. */
function environmentOf(lines: readonly string[]): Record<string, string> {
  const pairs: [string, string][] = [];
  for (const line of lines) {
    const equals = line.indexOf('=');
    if (equals > 0) pairs.push([line.slice(0, equals), line.slice(equals + 1)]);
  }
  return Object.fromEntries(pairs);
}

function withoutNul(text: string): boolean {
  return !text.includes('\0');
}
