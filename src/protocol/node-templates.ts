/**
 * What control asks of a node about templates: what sandboxes start from, and how that is built. Part of NodeApi; the same rules hold.
 *
 *  - A template never changes. A name leads to one; building under the name again leads it to another, and sandboxes keep what they have.
 *  - Names belong to a team. What is built twice from the same things is one template, whoever asks.
 *  - A build goes on whoever disconnects, and ends with a template under its name, or with nothing left of it. Repeating an order
 *    returns the same build; the same thing asked for while it is being built is that build.
 */
import type { BuildId, ContextId, TemplateId } from './ids.ts';
import type { NetworkPolicy } from './network.ts';
import type { Command } from './node-api.ts';

/** How a start command shows that it serves. Without any, running is enough. */
export interface TemplateReadiness {
  /** Inside, something accepts connections there. */
  readonly port: number | null;
  /** A command that ends with 0. */
  readonly command: Command | null;
  readonly timeoutMs: number;
}

export interface TemplateStart {
  readonly command: Command;
  readonly ready: TemplateReadiness;
}

/** What commands in a sandbox of the template have, unless sandbox or caller say otherwise. */
export interface TemplateDefaults {
  readonly env: Readonly<Record<string, string>>;
  readonly workdir: string;
  readonly user: string;
  readonly start: TemplateStart | null;
}

export type TemplateSource =
  | { readonly kind: 'base' }
  | { readonly kind: 'debian'; readonly packages: readonly string[] }
  | { readonly kind: 'definition'; readonly text: string; readonly contextId: ContextId | null }
  /** An OCI image: of a registry, as docker names it, or an archive that was sent as a context. */
  | { readonly kind: 'image'; readonly reference: string }
  | { readonly kind: 'imageArchive'; readonly contextId: ContextId };

export interface BuildTemplateOrder {
  readonly buildId: BuildId;
  readonly teamId: string;
  readonly name: string;
  readonly source: TemplateSource;
  /** Of the `run` steps of a definition. */
  readonly network: NetworkPolicy;
  /** Whether the node may be sent to a registry that the order names. */
  readonly mayPull: boolean;
}

export interface BuildOrder {
  readonly teamId: string;
  readonly buildId: BuildId;
}

export interface TemplateOrder {
  readonly teamId: string;
  readonly name: string;
}

export interface AppendContextOrder {
  readonly contextId: ContextId;
  /** Where the bytes belong; what was taken before is skipped, so that a repeat changes nothing. */
  readonly offset: number;
  readonly bytes: Uint8Array;
}

export interface NodeTemplate extends TemplateDefaults {
  readonly name: string;
  readonly templateId: TemplateId;
  /** What it was made from, in words. */
  readonly from: string;
  readonly sizeBytes: number;
  readonly createdAtMs: number;
  /** Sandboxes of it on this node. */
  readonly sandboxes: number;
}

export interface BuildFailure {
  readonly code: string;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>>;
}

export interface NodeBuild {
  readonly buildId: BuildId;
  readonly name: string;
  readonly state: 'running' | 'succeeded' | 'failed';
  readonly startedAtMs: number;
  readonly endedAtMs: number | null;
  readonly templateId: TemplateId | null;
  readonly error: BuildFailure | null;
}

/** Each with its number, to go on after. */
export type BuildItem =
  | {
      readonly kind: 'step';
      readonly sequence: number;
      readonly step: number;
      readonly steps: number;
      readonly text: string;
      /** Its layer was there already. */
      readonly cached: boolean;
    }
  | { readonly kind: 'log'; readonly sequence: number; readonly text: string }
  /** The log grew past its limit; the oldest of it is gone. */
  | { readonly kind: 'dropped'; readonly sequence: number }
  | { readonly kind: 'ended'; readonly sequence: number; readonly build: NodeBuild };

export interface NodeTemplates {
  build(order: BuildTemplateOrder): Promise<NodeBuild>;
  getBuild(order: BuildOrder): Promise<NodeBuild>;
  /** Everything after the item `after`, then what comes, until the build has ended. */
  followBuild(order: BuildOrder & { readonly after: number }, signal: AbortSignal): AsyncIterable<BuildItem>;
  /** What there is now of that. */
  readBuild(order: BuildOrder & { readonly after: number }): Promise<readonly BuildItem[]>;
  /** Ends a build that runs; of one that has ended: changes nothing. */
  cancelBuild(order: BuildOrder): Promise<NodeBuild>;
  /** A tar of the files that `copy` steps take, piece by piece. Answers with how much there is. */
  appendContext(order: AppendContextOrder): Promise<number>;
  list(order: { readonly teamId: string }): Promise<readonly NodeTemplate[]>;
  get(order: TemplateOrder): Promise<NodeTemplate>;
  /** Takes the name away. Its files go when no sandbox uses them. Of an unknown name: succeeds. */
  remove(order: TemplateOrder): Promise<void>;
}
