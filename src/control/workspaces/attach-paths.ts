/** Where workspaces may be in a sandbox. */
import { posix } from 'node:path';
import { PlatformError, workspaceLimits } from '../../protocol/index.ts';

/** Without a path it is below here, under its name. */
const defaultDirectory = '/workspace';
/** Directories that a sandbox is made of: a checkout in their place would take it apart. */
const reserved = [
  '/',
  '/bin',
  '/dev',
  '/etc',
  '/lib',
  '/lib64',
  '/proc',
  '/root',
  '/run',
  '/sbin',
  '/sys',
  '/tmp',
  '/usr',
  '/var',
  '/home',
];

/** Absolute and normal, and nothing that the sandbox itself needs. */
export function attachPath(given: string | undefined, workspaceName: string): string {
  const path = posix.normalize(given ?? posix.join(defaultDirectory, workspaceName)).replace(/(.)\/+$/, '$1');
  const isKernels = ['/dev/', '/proc/', '/sys/'].some((prefix) => path.startsWith(prefix));
  const parts = path.split('/');
  if (!path.startsWith('/') || reserved.includes(path) || isKernels || parts.includes('.git')) {
    const message = `A workspace cannot be at ${path}.`;
    throw new PlatformError('invalid_request', message, { details: { path: 'path' } });
  }
  return path;
}

/** Refuses a path at, in or around another one, and too many of them. */
export function checkApart(path: string, others: readonly { readonly path: string }[]): void {
  const other = others.find((one) => isWithin(path, one.path) || isWithin(one.path, path));
  if (other !== undefined) {
    const message = `${path} and ${other.path} would be in each other, and each has a workspace.`;
    throw new PlatformError('invalid_request', message, { details: { path: 'path', other: other.path } });
  }
  if (others.length < workspaceLimits.attachments) return;
  const message = `A sandbox has at most ${workspaceLimits.attachments} workspaces.`;
  throw new PlatformError('limit_exceeded', message, { details: { limit: workspaceLimits.attachments } });
}

function isWithin(path: string, directory: string): boolean {
  return path === directory || path.startsWith(`${directory}/`);
}
