/** The texts and documents around an image: how a source is written, what a configuration says, which manifest is meant. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { buildTar } from '../../../test/support/tar-builder.ts';
import { openArchive } from './image-archive.ts';
import { parseImageConfig } from './image-config.ts';
import { defaultImageLimits } from './image-limits.ts';
import { parseImageSource } from './image-source.ts';
import { chooseDescriptor, type Descriptor, machinePlatform, parseIndexOrManifest } from './manifests.ts';

const digest = `sha256:${'0'.repeat(64)}`;
const json = (value: unknown) => Buffer.from(JSON.stringify(value));
const refusal = expect.objectContaining({ code: 'image_refused' });

test('sources are written as other tools write them', () => {
  expect(parseImageSource('docker://debian:12')).toEqual({ kind: 'registry', reference: 'debian:12' });
  expect(parseImageSource('docker-archive:/a/b.tar')).toEqual({ kind: 'archive', path: '/a/b.tar' });
  expect(parseImageSource('oci-archive:b.tar:v1')).toEqual({ kind: 'archive', path: 'b.tar', tag: 'v1' });
  expect(parseImageSource('oci:dir:name:v1')).toEqual({ kind: 'layout', directory: 'dir', tag: 'name:v1' });
  for (const text of ['', 'debian', 'oci:', 'docker-archive:', 'http://x']) {
    expect(() => parseImageSource(text), text).toThrow(expect.objectContaining({ code: 'invalid_request' }));
  }
});

test('an archive whose names take too much memory is refused while it is read', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'atoll-archive-'));
  try {
    const path = join(directory, 'long.tar');
    const longName = (index: number) => `${index}`.padEnd(900_000, 'x');
    const items = Array.from({ length: 20 }, (_, index) => ({ name: 'x', pax: { path: longName(index) } }));
    await writeFile(path, buildTar(items));
    const options = { limits: defaultImageLimits, platform: machinePlatform() };
    const tooLong = { code: 'image_refused', message: expect.stringContaining('names') };
    await expect(openArchive(path, options)).rejects.toMatchObject(tooLong);
    // The control: with fewer of them it is refused for what it lacks.
    await writeFile(path, buildTar(items.slice(0, 3)));
    await expect(openArchive(path, options)).rejects.toMatchObject({
      message: expect.stringContaining('manifest.json'),
    });
  } finally {
    await rm(directory, { recursive: true });
  }
});

test('a configuration gives what commands need, and absent parts their defaults', () => {
  const rootfs = { type: 'layers', diff_ids: [digest] };
  const full = {
    Env: ['A=1', 'B=x=y', 'A=2', 'odd', '=no'],
    WorkingDir: 'srv',
    User: 'u',
    Entrypoint: ['e'],
    Cmd: ['c'],
  };
  expect(parseImageConfig(json({ os: 'linux', architecture: 'amd64', config: full, rootfs }))).toEqual({
    config: { env: { A: '2', B: 'x=y' }, workdir: '/srv', user: 'u', entrypoint: ['e'], cmd: ['c'] },
    diffIds: [digest],
    os: 'linux',
    architecture: 'amd64',
  });
  const empty = { env: {}, workdir: '/', user: '', entrypoint: [], cmd: [] };
  expect(parseImageConfig(json({ config: { Cmd: null, Env: null }, rootfs })).config).toEqual(empty);
  expect(parseImageConfig(json({ rootfs })).config).toEqual(empty);
  for (const bad of [{}, { rootfs: { type: 'other', diff_ids: [] } }, { rootfs, config: { Env: ['A=\0'] } }, []]) {
    expect(() => parseImageConfig(json(bad))).toThrow(refusal);
  }
  expect(() => parseImageConfig(Buffer.from('{'))).toThrow(refusal);
});

test('documents of the first schema and malformed ones are refused', () => {
  const layer = { mediaType: 'application/vnd.oci.image.layer.v1.tar', digest, size: 1 };
  expect(parseIndexOrManifest(json({ schemaVersion: 2, config: { digest, size: 1 }, layers: [layer] }))).toHaveProperty(
    'manifest',
  );
  for (const bad of [
    { schemaVersion: 1 },
    { schemaVersion: 2 },
    { schemaVersion: 2, manifests: [{ digest: 'sha256:../..', size: 1 }] },
    { schemaVersion: 2, config: { digest, size: -1 }, layers: [] },
    { schemaVersion: 2, config: { digest, size: 1 }, layers: [{ ...layer, size: 1.5 }] },
    { schemaVersion: 2, config: { digest, size: 1 }, layers: [{ ...layer, mediaType: 'text/plain' }] },
  ]) {
    expect(() => parseIndexOrManifest(json(bad))).toThrow(refusal);
  }
});

test('one of several is chosen by tag, then by platform', () => {
  const one = (name: string | undefined, architecture?: string): Descriptor => ({
    mediaType: 'application/vnd.oci.image.manifest.v1+json',
    digest,
    size: 1,
    platform: architecture === undefined ? undefined : { os: 'linux', architecture },
    annotations: name === undefined ? {} : { 'org.opencontainers.image.ref.name': name },
  });
  const platform = { os: 'linux', architecture: 'amd64' };
  const [a, b, arm, amd] = [one('a'), one('b'), one(undefined, 'arm64'), one(undefined, 'amd64')];
  expect(chooseDescriptor([a], { platform })).toBe(a);
  expect(chooseDescriptor([a, b], { platform, tag: 'b' })).toBe(b);
  expect(chooseDescriptor([arm, amd], { platform })).toBe(amd);
  expect(() => chooseDescriptor([a, b], { platform })).toThrow('name one of: a, b');
  expect(() => chooseDescriptor([a, b], { platform, tag: 'c' })).toThrow('no image with the tag "c"');
  expect(() => chooseDescriptor([arm], { platform })).toThrow('no image for linux/amd64');
  expect(() => chooseDescriptor([], { platform })).toThrow(refusal);
});
