/** The agent's port of a sandbox: whether it is there. */
import { notSupported } from '../e2b-error.ts';
import type { EnvdHandler, EnvdOptions } from '../envd-handler.ts';

export function createEnvd(_options: EnvdOptions): EnvdHandler {
  return {
    async handle(request, response) {
      if (request.url !== '/health') throw notSupported('Commands and files are');
      response.writeHead(204).end();
    },
  };
}
