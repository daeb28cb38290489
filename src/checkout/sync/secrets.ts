/** Which untracked files look like secrets: names only, nothing is read. */
import type { PlatformError } from '../../protocol/index.ts';
import { refused } from './checkout.ts';

const secretName =
  /^(\.env(\..+)?|\.envrc|\.netrc|\.npmrc|\.pypirc|\.git-credentials|id_(rsa|dsa|ecdsa|ed25519)|.+\.(pem|key|p12|pfx|keystore|jks)|credentials(\.json)?|service-account.*\.json)$/i;
const harmlessName = /^\.env\.(example|sample|template|dist|defaults)$/i;

export function looksSecret(path: string): boolean {
  const name = path.slice(path.lastIndexOf('/') + 1);
  return secretName.test(name) && !harmlessName.test(name);
}

export function refuseSecrets(paths: readonly string[]): PlatformError {
  return refused(
    `These files look like secrets: ${paths.join(', ')}. Ignore them, track them, or allow them by name.`,
    { paths },
  );
}
