/** Whether a template is there, as far as E2B's clients ask. */
import type { ControlPort } from '../control-port.ts';
import { E2bError, notSupported } from './e2b-error.ts';
import type { LifecycleCalls } from './lifecycle-calls.ts';
import type { Asked, Told } from './sandbox-calls.ts';
import { type KnownTemplate, listKnown } from './template-names.ts';

export class TemplateCalls {
  readonly #control: ControlPort;
  readonly #lifecycle: LifecycleCalls;

  constructor(control: ControlPort, lifecycle: LifecycleCalls) {
    this.#control = control;
    this.#lifecycle = lifecycle;
  }

  async list({ caller }: Asked): Promise<Told> {
    const known = await listKnown(this.#control, caller);
    const body = known.map(({ name }) => ({ templateID: name, aliases: [name], names: [name], public: true }));
    return { status: 200, body };
  }

  async alias(asked: Asked): Promise<Told> {
    const { name } = await this.#get(asked, asked.params['alias']!);
    return { status: 200, body: { templateID: name, public: true } };
  }

  async tags(asked: Asked): Promise<Told> {
    const { buildId, createdAt } = await this.#get(asked, asked.params['templateID']!);
    return { status: 200, body: [{ tag: 'default', buildID: buildId, createdAt }] };
  }

  /** Of a snapshot; templates are removed by whoever runs the server. */
  async delete(asked: Asked): Promise<Told> {
    const name = asked.params['templateID']!;
    if (await this.#lifecycle.deleteSnapshot(asked, name)) return { status: 204 };
    await this.#get(asked, name);
    throw notSupported('Deleting a template through this API is');
  }

  async #get({ caller }: Asked, name: string): Promise<KnownTemplate> {
    const found = (await listKnown(this.#control, caller)).find((template) => template.name === name);
    if (found !== undefined) return found;
    throw new E2bError(404, `template '${name.slice(0, 100)}' not found`);
  }
}
