/**
 * The JSON documents that hold an image together: index, manifest and descriptors, of OCI and of Docker's second schema, which
 * differ in names only. All of it is hostile; sizes and digests in it are promises that are checked when the bytes come.
 */
import { z } from 'zod';
import { refuseImage } from './image-limits.ts';

/** Bytes of one document. */
export const documentBytesMax = 4 * 1024 * 1024;
const descriptorsMax = 1_000;

export const indexMediaTypes = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
];
export const manifestMediaTypes = [
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
];
const layerMediaTypes = [
  'application/vnd.oci.image.layer.v1.tar',
  'application/vnd.oci.image.layer.v1.tar+gzip',
  'application/vnd.oci.image.layer.v1.tar+zstd',
  'application/vnd.docker.image.rootfs.diff.tar',
  'application/vnd.docker.image.rootfs.diff.tar.gzip',
  'application/vnd.docker.image.rootfs.diff.tar.zstd',
];
const refNameAnnotation = 'org.opencontainers.image.ref.name';

const descriptorSchema = z.object({
  mediaType: z.string().max(256).default(''),
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/, 'is no SHA-256 digest'),
  size: z.int().nonnegative(),
  platform: z
    .object({ os: z.string(), architecture: z.string(), variant: z.string().optional() })
    .nullish()
    .transform((value) => value ?? undefined),
  annotations: z
    .record(z.string(), z.string())
    .nullish()
    .transform((value) => value ?? {}),
});
export type Descriptor = z.infer<typeof descriptorSchema>;

const indexSchema = z.object({ schemaVersion: z.literal(2), manifests: z.array(descriptorSchema).max(descriptorsMax) });

const manifestSchema = z.object({
  schemaVersion: z.literal(2),
  config: descriptorSchema,
  layers: z.array(descriptorSchema).max(descriptorsMax),
});
export type Manifest = z.infer<typeof manifestSchema>;

export interface Platform {
  readonly os: string;
  readonly architecture: string;
}

/** The platform of this machine, in the words that images use. */
export function machinePlatform(): Platform {
  return { os: 'linux', architecture: process.arch === 'x64' ? 'amd64' : process.arch };
}

export function parseDocument<Schema extends z.ZodType>(
  bytes: Buffer,
  options: { readonly schema: Schema; readonly what: string },
): z.infer<Schema> {
  let json: unknown;
  try {
    json = JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    refuseImage(`The ${options.what} of the image is not JSON.`, {}, error);
  }
  const parsed = options.schema.safeParse(json);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  refuseImage(`The ${options.what} of the image is malformed: ${issue.path.join('.')}: ${issue.message}`);
}

/** A document is an index or a manifest; which is told by what it holds, for layouts need not say. */
export function parseIndexOrManifest(
  bytes: Buffer,
): { readonly index: readonly Descriptor[] } | { readonly manifest: Manifest } {
  const kind = parseDocument(bytes, {
    schema: z.object({ schemaVersion: z.int(), manifests: z.unknown().optional() }),
    what: 'manifest',
  });
  if (kind.schemaVersion === 1)
    refuseImage('The image has a manifest of the first schema, which names no layers to verify.');
  if (kind.manifests !== undefined) {
    return { index: parseDocument(bytes, { schema: indexSchema, what: 'index' }).manifests };
  }
  const manifest = parseDocument(bytes, { schema: manifestSchema, what: 'manifest' });
  for (const layer of manifest.layers) checkLayerType(layer);
  return { manifest };
}

function checkLayerType(layer: Descriptor): void {
  if (layerMediaTypes.includes(layer.mediaType)) return;
  refuseImage(`A layer of the image is of the type "${layer.mediaType}", which is not supported.`, {
    digest: layer.digest,
  });
}

/** The one entry of an index that is meant: by tag first, then by platform. */
export function chooseDescriptor(
  descriptors: readonly Descriptor[],
  options: { readonly platform: Platform; readonly tag?: string | undefined },
): Descriptor {
  const { platform, tag } = options;
  const tagged = tag === undefined ? descriptors : descriptors.filter((one) => isTagged(one, tag));
  const known = tagged.filter((one) => [...indexMediaTypes, ...manifestMediaTypes, ''].includes(one.mediaType));
  const fitting = known.filter((one) => fits(one, platform));
  const names = new Set(fitting.map((one) => one.annotations[refNameAnnotation]));
  if (fitting.length > 0 && (names.size === 1 || tag !== undefined)) return fitting[0]!;
  if (fitting.length > 1) {
    refuseImage(
      `There are several images here; name one of: ${[...names].filter((name) => name !== undefined).join(', ')}`,
    );
  }
  const wanted = `${platform.os}/${platform.architecture}`;
  refuseImage(
    tag !== undefined && tagged.length === 0
      ? `There is no image with the tag "${tag}" here.`
      : `There is no image for ${wanted} here.`,
    { available: descriptors.map((one) => `${one.platform?.os}/${one.platform?.architecture}`).slice(0, 32) },
  );
}

function isTagged(descriptor: Descriptor, tag: string): boolean {
  const name = descriptor.annotations[refNameAnnotation];
  return name === tag || descriptor.digest === tag || name?.endsWith(`:${tag}`) === true;
}

function fits({ platform }: Descriptor, wanted: Platform): boolean {
  return platform === undefined || (platform.os === wanted.os && platform.architecture === wanted.architecture);
}
