/** Which template of this server a client means. The only place that knows of a difference between the names. */
import { E2bError } from './e2b-error.ts';

const namePattern = /^(?:[a-z0-9_-]+\/)?([a-z0-9_-]+)(?::([a-z0-9_.-]+))?$/i;

/** What E2B's clients ask for when they name none, by what this server calls it. */
const renamed: Readonly<Record<string, string>> = { base: 'host' };

/** Names that are there without being built. */
export const knownTemplates: readonly string[] = ['base', 'host'];

export function templateOf(wanted: string): string {
  const [, name, tag = 'default'] = namePattern.exec(wanted) ?? [];
  if (name === undefined) throw new E2bError(400, `'${wanted.slice(0, 100)}' is no name of a template.`);
  if (tag !== 'default')
    throw new E2bError(404, `template '${wanted.slice(0, 100)}' not found: there is no tag '${tag}'.`);
  return renamed[name] ?? name;
}
