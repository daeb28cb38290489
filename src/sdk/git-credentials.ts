/**
 * Credentials for one git command. They travel in its environment and are handed to git by a helper that only echoes them, for one server; git
 * writes them nowhere, and every helper that the sandbox has configured is switched off, so that none stores them.
 */
import { PlatformError } from '../protocol/index.ts';

export interface GitCredentials {
  /** What a token needs is up to the server; most take any name. */
  readonly username: string;
  /** Or a token. */
  readonly password: string;
}

const echoing = `!f() { test "$1" = get && printf 'username=%s\\npassword=%s\\n' "$ATOLL_GIT_USERNAME" "$ATOLL_GIT_PASSWORD"; }; f`;

/** git reads configuration from GIT_CONFIG_COUNT and its pairs: neither a file nor an argument that others could see. */
export function credentialEnvironment(credentials: GitCredentials, url: string): Record<string, string> {
  const { username, password } = credentials;
  if (/[\n\r\0]/.test(username + password)) {
    throw new PlatformError('invalid_request', 'Credentials cannot hold a line break or a NUL byte.');
  }
  return {
    ATOLL_GIT_USERNAME: username,
    ATOLL_GIT_PASSWORD: password,
    GIT_CONFIG_COUNT: '2',
    GIT_CONFIG_KEY_0: 'credential.helper',
    GIT_CONFIG_VALUE_0: '',
    GIT_CONFIG_KEY_1: `credential.${originOf(url)}.helper`,
    GIT_CONFIG_VALUE_1: echoing,
  };
}

/** A URL with a password in it would be kept in the clone's configuration. */
export function checkUrl(url: string): string {
  if (url === '' || url.startsWith('-') || /[\0\n]/.test(url)) {
    throw new PlatformError('invalid_request', 'This is no address of a repository.');
  }
  if (URL.canParse(url) && new URL(url).password !== '') {
    throw new PlatformError('invalid_request', 'The URL holds a password, which git would store. Use `credentials`.');
  }
  return url;
}

function originOf(url: string): string {
  if (URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)) return new URL(url).origin;
  throw new PlatformError('invalid_request', 'Credentials are for a repository at http:// or https://.');
}

/** Takes out of a text what must not be shown: what was given, and whatever stands before an @ in a URL. */
export function withoutSecrets(text: string, credentials: GitCredentials | undefined): string {
  let shown = text.replaceAll(/(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/@]+@/gi, '$1***@');
  for (const secret of credentials === undefined ? [] : secretsOf(credentials)) shown = shown.replaceAll(secret, '***');
  return shown;
}

function secretsOf({ username, password }: GitCredentials): string[] {
  const forms = [
    password,
    encodeURIComponent(password),
    btoa(String.fromCharCode(...new TextEncoder().encode(`${username}:${password}`))),
  ];
  return forms.filter((form) => form !== '');
}
