/** What tests of templates share. */
import type { TemplateSourceInput } from '../../src/sdk/index.ts';

/** The first that needs them makes the repository and the root file system. */
export const buildLimitMs = 300_000;

/** JSON is YAML. */
export function definitionOf(definition: unknown): TemplateSourceInput {
  return { kind: 'definition', text: JSON.stringify(definition) };
}

export async function collected<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}
