/** The name of an image in a registry, resolved as docker does: no host means Docker Hub, and one name alone there is in `library/`. */
import { PlatformError } from '../../../protocol/index.ts';

export interface ImageReference {
  /** With its port; what the API is asked at. */
  readonly host: string;
  readonly repository: string;
  /** A tag, or a digest when the reference has one. */
  readonly version: string;
}

const hub = 'docker.io';
const hubNames: readonly string[] = [hub, 'index.docker.io', 'registry-1.docker.io'];
const hubHost = 'registry-1.docker.io';
const referenceMax = 512;

const hostPattern = /^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$/;
const repositoryPattern = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$/;
const tagPattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
const digestPattern = /^sha256:[0-9a-f]{64}$/;

export function parseReference(text: string): ImageReference {
  if (text.length > referenceMax) refuse(text.slice(0, 64), 'it is too long');
  const at = text.indexOf('@');
  const digest = at === -1 ? undefined : text.slice(at + 1);
  if (digest !== undefined && !digestPattern.test(digest)) refuse(text, 'what follows the @ is no SHA-256 digest');
  const { name, tag } = splitTag(at === -1 ? text : text.slice(0, at));
  if (tag !== undefined && !tagPattern.test(tag)) refuse(text, `"${tag}" is no tag`);
  const { host, path } = splitHost(name);
  if (!hostPattern.test(host)) refuse(text, `"${host}" is no host`);
  const isHub = hubNames.includes(host);
  const repository = isHub && !path.includes('/') ? `library/${path}` : path;
  if (!repositoryPattern.test(repository)) refuse(text, `"${path}" is no name of a repository`);
  return { host: isHub ? hubHost : host, repository, version: digest ?? tag ?? 'latest' };
}

/** A registry on this machine's loopback, where plain HTTP gives nothing away. */
export function isLoopback(host: string): boolean {
  const name = host.replace(/:[0-9]+$/, '');
  return name === 'localhost' || name === '[::1]' || /^127(?:\.[0-9]{1,3}){3}$/.test(name);
}

/** A colon before a slash belongs to the port of a host. */
function splitTag(name: string): { readonly name: string; readonly tag: string | undefined } {
  const colon = name.lastIndexOf(':');
  if (colon <= name.lastIndexOf('/')) return { name, tag: undefined };
  return { name: name.slice(0, colon), tag: name.slice(colon + 1) };
}

function splitHost(name: string): { readonly host: string; readonly path: string } {
  const slash = name.indexOf('/');
  const first = slash === -1 ? '' : name.slice(0, slash);
  const isHost = /[.:]/.test(first) || first === 'localhost';
  return isHost ? { host: first, path: name.slice(slash + 1) } : { host: hub, path: name };
}

function refuse(text: string, why: string): never {
  throw new PlatformError('invalid_request', `"${text}" is no name of an image: ${why}.`);
}
