/**
 * To E2B's clients a sandbox whose time is over is gone. Here its files stay until somebody deletes it, so this does: of teams that have used this API
 * since the server started, what was made to be killed at its timeout and has stopped is deleted.
 */
import { BackgroundLoop, type Logger, type Timers } from '../../base/index.ts';
import type { Caller } from '../../control/index.ts';
import { isPlatformError, type TeamId } from '../../protocol/index.ts';
import type { ControlPort } from '../control-port.ts';
import { onTimeoutKey } from './sandbox-marks.ts';

const intervalMs = 15_000;
/** Deleted of one team in one round. */
const deletedMax = 100;
/** Teams that are remembered. */
const teamsMax = 1_000;

export class ExpiredSandboxes {
  readonly #control: ControlPort;
  readonly #logger: Logger;
  /** Somebody of each team who may delete; the one who came last. */
  readonly #callers = new Map<TeamId, Caller>();
  readonly #loop: BackgroundLoop;

  constructor(options: { readonly control: ControlPort; readonly logger: Logger; readonly timers: Timers }) {
    const { control, logger, timers } = options;
    this.#control = control;
    this.#logger = logger;
    const onError = (error: unknown) => logger.error('expired sandboxes stay', { error });
    this.#loop = new BackgroundLoop({ intervalMs, timers, onError, tick: () => this.tick() });
    this.#loop.start();
  }

  /** Of a key that may write, and is not one sandbox's own. */
  seen(caller: Caller): void {
    if (caller.sandboxId !== null || (!this.#callers.has(caller.teamId) && this.#callers.size >= teamsMax)) return;
    this.#callers.set(caller.teamId, caller);
  }

  async tick(): Promise<void> {
    for (const caller of this.#callers.values()) {
      const metadata = [`${onTimeoutKey}=kill`];
      const { items } = await this.#control.sandboxes.list(caller, { state: ['stopped'], metadata, limit: deletedMax });
      for (const { id, generation } of items) {
        await this.#control.sandboxes.delete(caller, id, { generation }, { force: false }).catch((error: unknown) => {
          if (!isPlatformError(error)) throw error;
          this.#logger.info('an expired sandbox stays for now', { sandboxId: id, code: error.code });
        });
      }
    }
  }

  close(): Promise<void> {
    return this.#loop.close();
  }
}
