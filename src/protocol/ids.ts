/**
 * Ids carry their kind in the value and in the type: three letters and 20 of `[a-z0-9]`, no separator, so that an id
 * serves as a host name.
 */
import { z } from 'zod';

declare const kindOfId: unique symbol;
export type Id<Kind extends IdKind> = string & { readonly [kindOfId]: Kind };

export const idPrefixes = {
  sandbox: 'sbx',
  node: 'nod',
  team: 'tea',
  user: 'usr',
  key: 'key',
  operation: 'opr',
  lease: 'lse',
  token: 'tok',
  webhook: 'whk',
  request: 'req',
  process: 'prc',
  session: 'ses',
  terminal: 'trm',
  mark: 'mrk',
  checkpoint: 'chk',
  layer: 'lyr',
  writable: 'wrt',
  backup: 'bkp',
  template: 'tpl',
  build: 'bld',
  context: 'ctx',
  workspace: 'wsp',
  plan: 'pln',
  planCommit: 'cmt',
  planCheckpoint: 'pck',
  apply: 'apl',
} as const;

export type IdKind = keyof typeof idPrefixes;
export type SandboxId = Id<'sandbox'>;
export type NodeId = Id<'node'>;
export type TeamId = Id<'team'>;
export type UserId = Id<'user'>;
export type KeyId = Id<'key'>;
export type OperationId = Id<'operation'>;
export type LeaseId = Id<'lease'>;
export type TokenId = Id<'token'>;
export type WebhookId = Id<'webhook'>;
export type RequestId = Id<'request'>;
export type ProcessId = Id<'process'>;
export type SessionId = Id<'session'>;
export type TerminalId = Id<'terminal'>;
export type CheckpointId = Id<'checkpoint'>;
export type LayerId = Id<'layer'>;
export type WritableId = Id<'writable'>;
export type BackupId = Id<'backup'>;
export type TemplateId = Id<'template'>;
export type BuildId = Id<'build'>;
export type ContextId = Id<'context'>;
export type WorkspaceId = Id<'workspace'>;
export type PlanId = Id<'plan'>;
export type PlanCommitId = Id<'planCommit'>;
export type PlanCheckpointId = Id<'planCheckpoint'>;
export type ApplyId = Id<'apply'>;

const alphabet = 'abcdefghijklmnopqrstuvwxyz0123456789';
const randomPartLength = 20;
/** Bytes from here on would favour the alphabet's first letters. */
const biasedFrom = 256 - (256 % alphabet.length);

/** Fills with random bytes; passed in so that tests can fix it. */
export type RandomSource = (bytes: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer>;

export const systemRandom: RandomSource = (bytes) => crypto.getRandomValues(bytes);

export function newId<Kind extends IdKind>(kind: Kind, random: RandomSource = systemRandom): Id<Kind> {
  let text: string = idPrefixes[kind];
  while (text.length < 3 + randomPartLength) {
    for (const byte of random(new Uint8Array(32))) {
      if (byte < biasedFrom && text.length < 3 + randomPartLength) text += alphabet[byte % alphabet.length];
    }
  }
  return text as Id<Kind>;
}

export function isId<Kind extends IdKind>(kind: Kind, text: string): text is Id<Kind> {
  return text.startsWith(idPrefixes[kind]) && /^[a-z]{3}[a-z0-9]{20}$/.test(text);
}

/** The schema of one kind of id, for routes and records. */
export function idSchema<Kind extends IdKind>(kind: Kind) {
  return z
    .string()
    .regex(
      new RegExp(`^${idPrefixes[kind]}[a-z0-9]{20}$`),
      `Not a ${kind} id: "${idPrefixes[kind]}" and 20 of a-z, 0-9.`,
    )
    .transform((text) => text as Id<Kind>);
}
