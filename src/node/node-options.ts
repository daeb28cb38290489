/** What a node needs to know. */
import type { Clock, FaultPoints, Logger } from '../base/index.ts';
import type { OpenGuard } from '../isolation/index.ts';
import type { PoolSizes, RemoteRules, StorageKind, WorkspaceLimits } from '../layers/index.ts';
import type { ResolverOptions } from './resolver/resolver.ts';

export type StorageChoice = StorageKind | 'auto';

export interface SandboxNodeOptions {
  /** Belongs to this node alone; made with mode 0700 if it is not there. */
  readonly dataDirectory: string;
  /** The program atoll-init. */
  readonly initProgram: string;
  /** Of this software, for `describe`. */
  readonly version: string;
  /** Where templates are kept; several nodes may share it. Default: `layers` in the data directory. */
  readonly layersDirectory?: string;
  /** What sandboxes' files stand on. Default: what works best, tried at the first start; after that it stays what it is. */
  readonly storage?: StorageChoice;
  /** Of a pool. */
  readonly poolSizes?: PoolSizes;
  /** Which configuration of apt the packages of templates are brought with. Default: /etc/apt. */
  readonly aptDirectory?: string | undefined;
  /** The Node that goes into the template `base`. Default: the one that runs this. */
  readonly nodeProgram?: string;
  /** How many sandboxes, running or not. Default: 1,000. */
  readonly capacity?: number;
  /** Which resolvers answer sandboxes' questions for names. */
  readonly resolver?: ResolverOptions;
  /** Which git remotes and registries are asked, besides those that everybody reaches. */
  readonly remotes?: RemoteRules | undefined;
  readonly workspaceLimits?: Partial<WorkspaceLimits> | undefined;
  readonly log?: Logger;
  readonly clock?: Clock;
  readonly faults?: FaultPoints;
  /** Guards left out on purpose: for positive controls in tests of attacks, and nothing else. */
  readonly openGuards?: readonly OpenGuard[];
}
