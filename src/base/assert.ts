/** A failed assertion is a bug of ours: it becomes `internal`, and nothing of its message reaches a caller. */
export class AssertionError extends Error {
  override readonly name = 'AssertionError';
}

export function assert(condition: unknown, message = 'A condition that always holds does not.'): asserts condition {
  if (!condition) throw new AssertionError(message);
}

/** Ends a switch over a union: a new member does not compile until it has a case. */
export function assertNever(value: never): never {
  throw new AssertionError(`No case for ${describe(value)}.`);
}

function describe(value: unknown): string {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return typeof value;
  }
}
