/**
 * Where an image comes from, and how it is written as text:
 *
 *   docker-archive:PATH[:TAG]   what `docker save` writes
 *   oci-archive:PATH[:TAG]      an image layout in a tar file
 *   oci:DIRECTORY[:TAG]         an image layout
 *   docker://REFERENCE          a registry, for example docker://debian:12
 *
 * Both kinds of archive are recognised by what is in them; the two words are accepted because other tools use them.
 */
import { PlatformError } from '../../protocol/index.ts';

export interface RegistryCredentials {
  readonly username: string;
  readonly password: string;
  /** Hosts besides the registry's own that may be shown the password in exchange for a token, for example `gitlab.com`. */
  readonly tokenHosts?: readonly string[];
}

export type ImageSource =
  /** `tag` chooses among the images of an archive or layout; needed only where there are several. */
  | { readonly kind: 'archive'; readonly path: string; readonly tag?: string }
  | { readonly kind: 'layout'; readonly directory: string; readonly tag?: string }
  | {
      readonly kind: 'registry';
      /** As docker takes it: `debian:12`, `ghcr.io/owner/name@sha256:…`, `localhost:5000/name`. */
      readonly reference: string;
      readonly credentials?: RegistryCredentials;
      /** Allows plain HTTP to a registry that is not on this machine's loopback. */
      readonly insecure?: boolean;
    };

const archiveWords = ['docker-archive:', 'oci-archive:'];

export function parseImageSource(text: string): ImageSource {
  if (text.startsWith('docker://')) return { kind: 'registry', reference: text.slice('docker://'.length) };
  for (const word of archiveWords) {
    if (!text.startsWith(word)) continue;
    const { path, tag } = splitTag(text.slice(word.length), text);
    return { kind: 'archive', path, ...tag };
  }
  if (text.startsWith('oci:')) {
    const { path, tag } = splitTag(text.slice('oci:'.length), text);
    return { kind: 'layout', directory: path, ...tag };
  }
  throw new PlatformError(
    'invalid_request',
    `"${text}" names no image. Write docker://REFERENCE, docker-archive:PATH, oci-archive:PATH or oci:DIRECTORY.`,
  );
}

/** The tag begins at the first colon, as with skopeo: a path with a colon cannot be written this way. */
function splitTag(rest: string, text: string): { readonly path: string; readonly tag: { readonly tag?: string } } {
  const colon = rest.indexOf(':');
  const path = colon === -1 ? rest : rest.slice(0, colon);
  const tag = colon === -1 ? '' : rest.slice(colon + 1);
  if (path === '') throw new PlatformError('invalid_request', `"${text}" names no path.`);
  return { path, tag: tag === '' ? {} : { tag } };
}
