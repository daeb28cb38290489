/** Who asks: the key that a request was made with. */
import type { KeyId, SandboxId, Scope, TeamId, UserId } from '../protocol/index.ts';

export interface Caller {
  readonly keyId: KeyId;
  readonly teamId: TeamId;
  readonly userId: UserId | null;
  readonly scopes: readonly Scope[];
  /** Set for a token that reaches one sandbox only. */
  readonly sandboxId: SandboxId | null;
  readonly name: string;
}
