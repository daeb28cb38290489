/** Cuts an answer short, so that its reader cannot take it for a whole one. */
import type { ServerResponse } from 'node:http';

export function breakOff(response: ServerResponse): void {
  response.socket?.destroy();
  response.destroy();
}
