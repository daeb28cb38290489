/** Which template of this server a client means. The only place that knows of a difference between the names. */
import type { Caller } from '../../control/index.ts';
import type { CheckpointId } from '../../protocol/index.ts';
import type { ControlPort } from '../control-port.ts';
import { E2bError } from './e2b-error.ts';
import { findSnapshot } from './snapshots.ts';

const namePattern = /^(?:[a-z0-9_-]+\/)?([a-z0-9_-]+)(?::([a-z0-9_.-]+))?$/i;

/** What E2B's clients ask for when they name none, by what this server calls it. */
const renamed: Readonly<Record<string, string>> = { base: 'host' };

/** Names that are there without being built. */
export const knownTemplates: readonly string[] = ['base', 'host'];

export type TemplateSource = { readonly template: string } | { readonly checkpoint: CheckpointId };

/** What a client means by a template: a snapshot, or a template. */
export async function sourceOf(control: ControlPort, caller: Caller, wanted: string): Promise<TemplateSource> {
  const name = wanted.split(':')[0]!;
  const isTemplate = knownTemplates.includes(name);
  const checkpoint = isTemplate ? undefined : await findSnapshot(control, caller, wanted);
  return checkpoint === undefined ? { template: templateOf(wanted) } : { checkpoint };
}

function templateOf(wanted: string): string {
  const [, name, tag = 'default'] = namePattern.exec(wanted) ?? [];
  if (name === undefined) throw new E2bError(400, `'${wanted.slice(0, 100)}' is no name of a template.`);
  if (tag !== 'default')
    throw new E2bError(404, `template '${wanted.slice(0, 100)}' not found: there is no tag '${tag}'.`);
  return renamed[name] ?? name;
}
