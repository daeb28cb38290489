/** What a failed call to a node means: a refusal of its own, out of reach, or lost midway. */
import type { IncomingMessage } from 'node:http';
import { PlatformError } from '../../protocol/index.ts';
import { parseErrorBody, parseJson, readWhole } from './node-wire.ts';

export interface AskedCall {
  /** Asking changes nothing, so a lost answer leaves nothing in doubt. */
  readonly asksOnly: boolean;
}

export async function refusalOf(call: AskedCall, response: IncomingMessage): Promise<PlatformError> {
  try {
    const refusal = parseErrorBody(parseJson(await readWhole(response)));
    return refusal ?? lost(call, new Error(`The node answered ${response.statusCode} without saying why.`));
  } catch (error) {
    return lost(call, error);
  }
}

export function unreachable(error: unknown): PlatformError {
  return new PlatformError('node_unavailable', 'The node is out of reach; nothing was changed.', { cause: error });
}

export function lost(call: AskedCall, error: unknown): PlatformError {
  if (call.asksOnly) return unreachable(error);
  return new PlatformError('outcome_unknown', 'The connection to the node was lost midway.', { cause: error });
}
