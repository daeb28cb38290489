/** How long to wait before the next look, where nobody tells when it is worth it. */
const firstMs = 50;
const maxMs = 1_000;
const doublingsMax = 10;

export function growingPauseMs(attempt: number): number {
  return Math.min(maxMs, firstMs * 2 ** Math.min(attempt, doublingsMax));
}
