/**
 * Ports of sandboxes: what listens, what is exposed, and who is let in. An exposure is a row of the store that belongs to its sandbox; node and
 * sandbox know nothing of it, so it holds whether the sandbox runs or not, and starts none that is stopped.
 *
 * The text of a token is derived from its id and the server's secret; the store has its hash. Giving an exposure another token id is what
 * revokes the earlier token.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import {
  type BodyOf,
  type ByteConnection,
  type Conditions,
  type ExposureView,
  type LifeOrder,
  type ListeningPort,
  newId,
  PlatformError,
  portLimits,
  type routes,
  type SandboxId,
} from '../protocol/index.ts';
import type { ExposureKey, ExposureRecord, SandboxRecord, Tables } from '../store/index.ts';
import type { Caller } from './caller.ts';
import { type CallParts, lifeOrderOf } from './change-in-life.ts';
import type { ControlContext } from './context.ts';
import { PreviewAdmissions } from './preview-admissions.ts';
import { appendEvents, notFound } from './sandbox-records.ts';

/** What is exposed, without its addresses, which only the server knows. */
export type ExposedPort = Omit<ExposureView, 'url' | 'pathUrl'>;
export type ExposedPortWithToken = ExposedPort & { readonly token: string };

/** One that was let in. It leaves when it is done, or when `revoked` aborts. */
export interface PreviewAdmission {
  /** The life that it leads to. */
  readonly life: LifeOrder;
  readonly revoked: AbortSignal;
  open(signal: AbortSignal): Promise<ByteConnection>;
  leave(): void;
}

interface Found {
  readonly exposure: ExposureRecord | undefined;
  readonly sandbox: SandboxRecord | undefined;
}

type Change = (
  tables: Tables,
  sandbox: SandboxRecord,
  found: ExposureRecord | undefined,
) => Promise<ExposureRecord | null>;

export class Ports {
  readonly #context: ControlContext;
  readonly #parts: CallParts;
  readonly #admissions = new PreviewAdmissions();
  /** How many exposures this process has taken back. */
  #revocations = 0;

  constructor(context: ControlContext, parts: CallParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async list(caller: Caller, sandboxId: SandboxId, conditions: Conditions) {
    const record = await this.#parts.records.inLife(caller, sandboxId, conditions);
    const exposed = await this.#context.store.read((tables) => tables.exposures.list(sandboxId));
    return { listening: await this.#listening(record), exposed: exposed.map(viewOf) };
  }

  async #listening(record: SandboxRecord): Promise<readonly ListeningPort[]> {
    if (record.state.kind !== 'running') return [];
    return await this.#context.nodes.call(record.nodeId, (node) => node.listPorts(lifeOrderOf(record)));
  }

  /** A connection for a caller of the API, to any port, exposed or not. */
  async open(caller: Caller, key: ExposureKey, conditions: Conditions, signal: AbortSignal): Promise<ByteConnection> {
    return await this.#open(await this.#parts.records.runningIn(caller, key.sandboxId, conditions), key.port, signal);
  }

  async expose(
    caller: Caller,
    key: ExposureKey,
    conditions: Conditions,
    body: BodyOf<typeof routes.exposePort>,
  ): Promise<ExposedPortWithToken> {
    const record = await this.#change(
      'exposePort',
      { caller, key, conditions, body },
      async (tables, sandbox, found) => {
        const isPublic = body.public ?? found?.isPublic ?? false;
        if (found?.isPublic === isPublic) return found;
        if (found === undefined) await this.#checkRoom(tables, key.sandboxId);
        const next = found === undefined ? this.#fresh(caller, key, isPublic) : { ...found, isPublic };
        await tables.exposures.put(next);
        await appendEvents(tables, sandbox, [{ kind: 'port.exposed', data: { port: key.port, public: isPublic } }]);
        return next;
      },
    );
    return this.#withToken(record!);
  }

  async unexpose(caller: Caller, key: ExposureKey, conditions: Conditions): Promise<void> {
    await this.#change('unexposePort', { caller, key, conditions, body: {} }, async (tables, sandbox) => {
      if (await tables.exposures.remove(key)) {
        await appendEvents(tables, sandbox, [{ kind: 'port.unexposed', data: { port: key.port } }]);
      }
      return null;
    });
  }

  async rotate(caller: Caller, key: ExposureKey, conditions: Conditions): Promise<ExposedPortWithToken> {
    const record = await this.#change(
      'rotatePortToken',
      { caller, key, conditions, body: {} },
      async (tables, sandbox, found) => {
        if (found === undefined) throw notExposed();
        const { tokenId, tokenHash } = this.#fresh(caller, key, found.isPublic);
        const next = { ...found, tokenId, tokenHash };
        await tables.exposures.put(next);
        await appendEvents(tables, sandbox, [{ kind: 'port.token_rotated', data: { port: key.port } }]);
        return next;
      },
    );
    return this.#withToken(record!);
  }

  /**
   * Lets a visitor of a preview in, who is nobody's caller: what is not exposed and what does not exist are the same to it. Refuses while the
   * sandbox does not run, unless it is paused and set to be resumed by traffic.
   */
  async admit(key: ExposureKey, token: string | undefined): Promise<PreviewAdmission> {
    for (;;) {
      const revocations = this.#revocations;
      const found = await this.#lookUp(key);
      checkToken(found.exposure, token);
      if (found.sandbox !== undefined && found.sandbox.state.kind !== 'running') {
        await this.#parts.records.running(found.sandbox, {});
        continue;
      }
      // What was read before a revocation must let nobody in after it: it would be told of none. From here to the entry nothing is awaited.
      if (revocations === this.#revocations) return this.#enter(key, found);
    }
  }

  #enter(key: ExposureKey, { sandbox }: Found): PreviewAdmission {
    if (sandbox === undefined) throw notExposed();
    const { revoked, leave } = this.#admissions.enter(key);
    return {
      life: lifeOrderOf(sandbox),
      revoked,
      leave,
      open: (signal) => this.#open(sandbox, key.port, AbortSignal.any([signal, revoked])),
    };
  }

  async #lookUp(key: ExposureKey): Promise<Found> {
    return await this.#context.store.read(async (tables) => {
      const exposure = await tables.exposures.find(key);
      return { exposure, sandbox: exposure && (await tables.sandboxes.find(key.sandboxId)) };
    });
  }

  async #open(record: SandboxRecord, port: number, signal: AbortSignal): Promise<ByteConnection> {
    const order = { ...lifeOrderOf(record), port };
    return await this.#context.nodes.call(record.nodeId, (node) => node.openPort(order, signal));
  }

  async #change(
    kind: string,
    asked: { caller: Caller; key: ExposureKey; conditions: Conditions; body: unknown },
    change: Change,
  ): Promise<ExposureRecord | null> {
    const { caller, key, conditions, body } = asked;
    return await this.#parts.mutations.run({
      caller,
      kind,
      conditions,
      request: { key, body },
      effect: () =>
        this.#parts.gate.pass(key.sandboxId, conditions, async () => {
          const record = await this.#parts.records.get(caller, key.sandboxId);
          await this.#parts.records.check(record, conditions);
          return await this.#commit(caller, key, change);
        }),
    });
  }

  async #commit(caller: Caller, key: ExposureKey, change: Change): Promise<ExposureRecord | null> {
    const { before, after } = await this.#context.store.transact(async (tables) => {
      const sandbox = await tables.sandboxes.find(key.sandboxId);
      if (sandbox?.teamId !== caller.teamId) throw notFound(key.sandboxId);
      const found = await tables.exposures.find(key);
      const event = { ...sandbox, updatedAtMs: this.#context.clock.nowMs() };
      return { before: found, after: await change(tables, event, found) };
    });
    this.#context.events.notify();
    if (before !== undefined && isNarrower(before, after)) {
      this.#revocations++;
      this.#admissions.revoke(key);
    }
    return after;
  }

  async #checkRoom(tables: Tables, sandboxId: SandboxId): Promise<void> {
    if ((await tables.exposures.list(sandboxId)).length < portLimits.exposures) return;
    throw new PlatformError('limit_exceeded', `A sandbox has at most ${portLimits.exposures} exposed ports.`);
  }

  #fresh(caller: Caller, key: ExposureKey, isPublic: boolean): ExposureRecord {
    const tokenId = newId('token', this.#context.random);
    const tokenHash = hashOf(this.#tokenText(tokenId)).toString('hex');
    const { sandboxId, port } = key;
    return {
      sandboxId,
      port,
      isPublic,
      tokenId,
      tokenHash,
      createdAtMs: this.#context.clock.nowMs(),
      createdBy: caller.keyId,
    };
  }

  #withToken(record: ExposureRecord): ExposedPortWithToken {
    return { ...viewOf(record), token: this.#tokenText(record.tokenId) };
  }

  #tokenText(tokenId: string): string {
    const digest = createHmac('sha256', this.#context.secret).update(`preview ${tokenId}`).digest('hex');
    return `atoll_prv${digest.slice(0, 40)}`;
  }
}

/** Whether somebody who was let in before would not be any more. */
function isNarrower(before: ExposureRecord, after: ExposureRecord | null): boolean {
  return after === null || before.tokenId !== after.tokenId || (before.isPublic && !after.isPublic);
}

function checkToken(exposure: ExposureRecord | undefined, token: string | undefined): void {
  if (exposure === undefined) throw notExposed();
  if (exposure.isPublic || isTokenOf(exposure, token)) return;
  const message = `This preview needs its token${token === undefined ? '' : ', and this one is not valid'}.`;
  throw new PlatformError('preview_token_invalid', message);
}

function isTokenOf(exposure: ExposureRecord, token: string | undefined): boolean {
  return token !== undefined && timingSafeEqual(hashOf(token), Buffer.from(exposure.tokenHash, 'hex'));
}

function hashOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

function viewOf(record: ExposureRecord): ExposedPort {
  const { sandboxId, port, isPublic, createdAtMs } = record;
  return { sandboxId, port, public: isPublic, createdAt: new Date(createdAtMs).toISOString() };
}

function notExposed(): PlatformError {
  return new PlatformError('port_not_exposed', 'There is no preview here: no such port is exposed.');
}
