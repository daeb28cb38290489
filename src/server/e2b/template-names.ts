/** Which template of this server a client means. The only place that knows of a difference between the names. */
import type { Caller } from '../../control/index.ts';
import type { CheckpointId } from '../../protocol/index.ts';
import type { ControlPort } from '../control-port.ts';
import { E2bError } from './e2b-error.ts';
import { findSnapshot } from './snapshots.ts';

const namePattern = /^(?:[a-z0-9_-]+\/)?([a-z0-9_-]+)(?::([a-z0-9_.-]+))?$/i;

/** What E2B's clients ask for when they name none: the template of that name once it is built, until then the machine's own files. */
const usualName = 'base';
const hostName = 'host';

export type TemplateSource = { readonly template: string } | { readonly checkpoint: CheckpointId };

export interface KnownTemplate {
  readonly name: string;
  readonly buildId: string;
  readonly createdAt: string;
}

/** What a client means by a template: a snapshot, or a template. */
export async function sourceOf(control: ControlPort, caller: Caller, wanted: string): Promise<TemplateSource> {
  const checkpoint = wanted === usualName ? undefined : await findSnapshot(control, caller, wanted);
  return checkpoint === undefined ? { template: await templateOf(control, caller, wanted) } : { checkpoint };
}

async function templateOf(control: ControlPort, caller: Caller, wanted: string): Promise<string> {
  const [, name, tag = 'default'] = namePattern.exec(wanted) ?? [];
  if (name === undefined) throw new E2bError(400, `'${wanted.slice(0, 100)}' is no name of a template.`);
  if (tag !== 'default')
    throw new E2bError(404, `template '${wanted.slice(0, 100)}' not found: there is no tag '${tag}'.`);
  if (name !== usualName) return name;
  const { items } = await control.templates.list(caller);
  return items.some((template) => template.name === usualName) ? usualName : hostName;
}

/** `base` is among them, built or not. */
export async function listKnown(control: ControlPort, caller: Caller): Promise<readonly KnownTemplate[]> {
  const { items } = await control.templates.list(caller);
  const known = items.map(({ name, id, createdAt }) => ({
    name,
    buildId: id ?? name,
    createdAt: createdAt ?? unbuiltAt,
  }));
  const hasUsual = known.some(({ name }) => name === usualName);
  return hasUsual ? known : [{ name: usualName, buildId: hostName, createdAt: unbuiltAt }, ...known];
}

/** What was never built has no such time; the protocol demands one. */
const unbuiltAt = new Date(0).toISOString();
