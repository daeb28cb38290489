/** Which files of this machine go with a definition: those that its `copy` steps name. The server says what is wrong with it. */
import { parse } from 'yaml';

const aliasesMax = 16;

export function copiedPaths(text: string): string[] {
  let data: unknown;
  try {
    data = parse(text, { maxAliasCount: aliasesMax });
  } catch {
    return [];
  }
  const steps = (data as { steps?: unknown } | null)?.steps;
  if (!Array.isArray(steps)) return [];
  const paths = steps.flatMap((step: { copy?: { from?: unknown } } | null) => {
    const from = step?.copy?.from;
    const isInside = typeof from === 'string' && !from.startsWith('/') && !from.split('/').includes('..');
    return isInside ? [from] : [];
  });
  return [...new Set(paths)].sort();
}
