/** The agent of each sandbox, for routing: who answers, and whose a signed address is. */
import type { EnvdHandler, EnvdOptions } from '../envd-handler.ts';
import { Envd } from './envd.ts';

export { sandboxOfSignature } from './signatures.ts';

export function createEnvd(options: EnvdOptions): EnvdHandler {
  return new Envd(options);
}
