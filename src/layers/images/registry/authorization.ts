/**
 * What a registry wants to see before it answers: nothing, the password itself, or a token that the password (or nobody's name) is
 * exchanged for at the place that the registry names.
 *
 * Always true: the password goes to the registry's own host, or to a token service that its owner named; a token service that
 * somebody else names is asked without it. Nothing of either stands in an error.
 */
import { PlatformError } from '../../../protocol/index.ts';
import type { RemoteRules } from '../../remote-rules.ts';
import type { RegistryCredentials } from '../image-source.ts';
import { httpGet, readBody, unavailable } from './http-get.ts';

export interface AuthorizationOptions {
  readonly registry: URL;
  readonly repository: string;
  readonly credentials: RegistryCredentials | undefined;
  readonly rules: RemoteRules;
  readonly signal: AbortSignal | undefined;
}

interface Challenge {
  readonly scheme: string;
  readonly parameters: ReadonlyMap<string, string>;
}

/** Where Docker Hub's tokens come from. */
const hubTokenHosts: Readonly<Record<string, string>> = { 'registry-1.docker.io': 'auth.docker.io' };
const tokenBytesMax = 256 * 1024;
const headerMax = 16_384;

/** The value of an Authorization header that answers this challenge. */
export async function authorize(challengeText: string | undefined, options: AuthorizationOptions): Promise<string> {
  const challenges = parseChallenges(challengeText ?? '');
  const bearer = challenges.find(({ scheme }) => scheme === 'bearer');
  if (bearer !== undefined) return `Bearer ${await fetchToken(bearer, options)}`;
  const { credentials, registry } = options;
  if (challenges.some(({ scheme }) => scheme === 'basic')) {
    if (credentials !== undefined) return basic(credentials);
    throw new PlatformError('registry_denied', `The registry at ${registry.host} wants a user name and password.`);
  }
  throw new PlatformError(
    'registry_denied',
    `The registry at ${registry.host} refuses and does not say what it wants.`,
  );
}

/** `Scheme key="value", key=value`, several in one line. */
export function parseChallenges(text: string): Challenge[] {
  const challenges: { scheme: string; parameters: Map<string, string> }[] = [];
  const pattern = /\s*,?\s*([A-Za-z0-9_-]+)(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))|(?=\s|$))/gy;
  for (
    let match = pattern.exec(text.slice(0, headerMax));
    match !== null;
    match = pattern.exec(text.slice(0, headerMax))
  ) {
    const [, word = '', quoted, plain] = match;
    const value = quoted?.replaceAll(/\\(.)/g, '$1') ?? plain;
    if (value === undefined) challenges.push({ scheme: word.toLowerCase(), parameters: new Map() });
    else challenges.at(-1)?.parameters.set(word.toLowerCase(), value);
  }
  return challenges;
}

async function fetchToken({ parameters }: Challenge, options: AuthorizationOptions): Promise<string> {
  const { registry, repository, credentials, rules, signal } = options;
  const url = URL.parse(parameters.get('realm') ?? '');
  if (url === null || !isUsable(url, registry)) {
    throw new PlatformError(
      'registry_denied',
      `The registry at ${registry.host} names no token service that may be asked.`,
    );
  }
  const service = parameters.get('service');
  if (service !== undefined) url.searchParams.set('service', service);
  url.searchParams.set('scope', `repository:${repository}:pull`);
  const isShown = credentials !== undefined && mayBeShown(url, options);
  const origin = url.origin;
  const answer = await httpGet(url, {
    rules,
    signal,
    headersFor: (hop) => (isShown && hop.origin === origin ? { authorization: basic(credentials) } : {}),
  });
  if (answer.status !== 200) {
    answer.discard();
    if (answer.status >= 500 || answer.status === 429) throw unavailable(url, `it answers ${answer.status}`);
    const hint =
      credentials !== undefined && !isShown
        ? ` The password was not sent there, for ${url.hostname} is not the registry; name it among the token hosts.`
        : '';
    throw new PlatformError('registry_denied', `The token service at ${url.host} answers ${answer.status}.${hint}`);
  }
  return tokenOf(await readBody(answer, { limitBytes: tokenBytesMax }), url);
}

function isUsable(url: URL, registry: URL): boolean {
  if (url.username !== '' || url.password !== '') return false;
  return (
    url.protocol === 'https:' ||
    (registry.protocol === 'http:' && url.protocol === 'http:' && url.host === registry.host)
  );
}

function mayBeShown(url: URL, { registry, credentials }: AuthorizationOptions): boolean {
  if (url.origin === registry.origin || (url.protocol === 'https:' && url.hostname === registry.hostname)) return true;
  const named = [hubTokenHosts[registry.hostname], ...(credentials?.tokenHosts ?? [])];
  return url.protocol === 'https:' && named.includes(url.hostname);
}

function tokenOf(bytes: Buffer, url: URL): string {
  try {
    const { token, access_token: accessToken } = JSON.parse(bytes.toString('utf8')) as Record<string, unknown>;
    const found = typeof token === 'string' && token !== '' ? token : accessToken;
    if (typeof found === 'string' && /^[\x21-\x7e]+$/.test(found)) return found;
  } catch {
    // What follows says it for both.
  }
  throw unavailable(url, 'it answers without a token');
}

function basic({ username, password }: RegistryCredentials): string {
  return `Basic ${Buffer.from(`${username}:${password}`, 'utf8').toString('base64')}`;
}
