/** Sends a webhook. A redirect is not followed: the address is what its owner gave. */
import type { Deliver } from '../control/index.ts';

const deliveryTimeoutMs = 10_000;

export const deliverByHttp: Deliver = async ({ url, headers, body }, signal) => {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(deliveryTimeoutMs)]);
  const answer = await fetch(url, { method: 'POST', headers, body, redirect: 'manual', signal: limited });
  await answer.body?.cancel();
  if (!answer.ok) throw new Error(`The receiver answered ${answer.status}.`);
};
