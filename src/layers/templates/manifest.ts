/**
 * What is known of a built template, in a file beside its layers. Its id is made from what it consists of, so that two builds of the same
 * things are one template, and a manifest that does not match its id is refused.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { idSchema, type TemplateDefaults, type TemplateId } from '../../protocol/index.ts';

const command = z.union([z.string(), z.array(z.string())]);

/** Also kept in the record of every sandbox of the template. */
export const templateDefaults = z.strictObject({
  env: z.record(z.string(), z.string()),
  workdir: z.string().startsWith('/'),
  user: z.string().min(1),
  start: z
    .strictObject({
      command,
      ready: z.strictObject({
        port: z.int().min(1).max(65_535).nullable(),
        command: command.nullable(),
        timeoutMs: z.int().positive(),
      }),
    })
    .nullable(),
});

export const layerName = /^template-[0-9a-f]{32}$/;

const manifestSchema = z.strictObject({
  format: z.literal(1),
  templateId: idSchema('template'),
  /** Uppermost first. */
  layers: z.array(z.string().regex(layerName)).min(1),
  defaults: templateDefaults,
  from: z.string(),
  sizeBytes: z.int().nonnegative(),
  createdAtMs: z.int().nonnegative(),
});
export type TemplateManifest = z.infer<typeof manifestSchema>;

/** Names of users; `host` is nobody's. */
export const templateName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9_-]{0,62}(:[A-Za-z0-9_][A-Za-z0-9._-]{0,62})?$/)
  .refine((name) => name !== 'host');

export function templateIdOf(content: {
  readonly layers: readonly string[];
  readonly defaults: TemplateDefaults;
}): TemplateId {
  const { env, workdir, user, start } = content.defaults;
  const sorted = Object.entries(env).sort(([a], [b]) => (a < b ? -1 : 1));
  return `tpl${digestOf([content.layers, sorted, workdir, user, start]).slice(0, 20)}` as TemplateId;
}

/** The name of the layer that a step leaves, given everything that it depends on. */
export function layerNameOf(parts: readonly unknown[]): string {
  return `template-${digestOf(parts).slice(0, 32)}`;
}

export function parseManifest(text: string): TemplateManifest {
  const manifest = manifestSchema.parse(JSON.parse(text));
  if (templateIdOf(manifest) !== manifest.templateId) {
    throw new Error(`The manifest of ${manifest.templateId} does not match its id.`);
  }
  return manifest;
}

function digestOf(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex');
}
