/** Images made of given layers, with right digests unless a test bends them. */
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { buildTar } from './tar-builder.ts';

export interface BuiltImage {
  readonly blobs: ReadonlyMap<string, Buffer>;
  readonly manifest: Buffer;
  readonly manifestDigest: string;
  readonly config: Buffer;
  readonly tars: readonly Buffer[];
}

export interface BuildOptions {
  /** By default gzip. */
  readonly compress?: (tar: Buffer) => Buffer;
  readonly architecture?: string;
  readonly config?: Readonly<Record<string, unknown>>;
  /** What is put into the manifest in place of what is right. */
  readonly bend?: (manifest: { config: object; layers: { digest: string; size: number; mediaType: string }[] }) => void;
}

export function sha256(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

export function buildImage(tars: readonly Buffer[], options: BuildOptions = {}): BuiltImage {
  const blobs = new Map<string, Buffer>();
  const add = (bytes: Buffer, mediaType: string) => {
    blobs.set(sha256(bytes), bytes);
    return { mediaType: `application/vnd.oci.image.${mediaType}`, digest: sha256(bytes), size: bytes.byteLength };
  };
  const config = Buffer.from(
    JSON.stringify({
      os: 'linux',
      architecture: options.architecture ?? (process.arch === 'x64' ? 'amd64' : process.arch),
      config: options.config ?? {},
      rootfs: { type: 'layers', diff_ids: tars.map(sha256) },
    }),
  );
  const document = {
    schemaVersion: 2,
    config: add(config, 'config.v1+json'),
    layers: tars.map((tar) => add((options.compress ?? gzipSync)(tar), 'layer.v1.tar+gzip')),
  };
  options.bend?.(document);
  const manifest = Buffer.from(JSON.stringify(document));
  return { blobs, manifest, manifestDigest: sha256(manifest), config, tars };
}

export async function writeLayout(directory: string, image: BuiltImage): Promise<void> {
  const blobs = join(directory, 'blobs', 'sha256');
  await mkdir(blobs, { recursive: true });
  await writeFile(join(directory, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}');
  const { manifest, manifestDigest: digest } = image;
  const mediaType = 'application/vnd.oci.image.manifest.v1+json';
  const index = { schemaVersion: 2, manifests: [{ mediaType, digest, size: manifest.byteLength }] };
  await writeFile(join(directory, 'index.json'), JSON.stringify(index));
  for (const [name, bytes] of [...image.blobs, [digest, manifest] as const]) {
    await writeFile(join(blobs, name.slice('sha256:'.length)), bytes);
  }
}

/** As `docker save` wrote it for long: plain layers, named by file. */
export async function writeSaved(path: string, image: BuiltImage): Promise<void> {
  const config = `${sha256(image.config).slice('sha256:'.length)}.json`;
  const manifest = [
    { Config: config, RepoTags: ['made:latest'], Layers: image.tars.map((_, at) => `${at}/layer.tar`) },
  ];
  await writeFile(
    path,
    buildTar([
      ...image.tars.map((content, at) => ({ name: `${at}/layer.tar`, content })),
      { name: config, content: image.config },
      { name: 'manifest.json', content: JSON.stringify(manifest) },
    ]),
  );
}
