/** Whether a template is there, as far as E2B's clients ask. */
import { E2bError, notSupported } from './e2b-error.ts';
import type { LifecycleCalls } from './lifecycle-calls.ts';
import type { Asked, Told } from './sandbox-calls.ts';
import { knownTemplates } from './template-names.ts';

export class TemplateCalls {
  readonly #lifecycle: LifecycleCalls;

  constructor(lifecycle: LifecycleCalls) {
    this.#lifecycle = lifecycle;
  }

  async list(_asked: Asked): Promise<Told> {
    const body = knownTemplates.map((name) => ({ templateID: name, aliases: [name], names: [name], public: true }));
    return { status: 200, body };
  }

  async alias({ params }: Asked): Promise<Told> {
    const name = this.#get(params['alias']!);
    return { status: 200, body: { templateID: name, public: true } };
  }

  async tags({ params }: Asked): Promise<Told> {
    const name = this.#get(params['templateID']!);
    return { status: 200, body: [{ tag: 'default', buildID: name, createdAt: new Date(0).toISOString() }] };
  }

  /** Of a snapshot; templates are removed by whoever runs the server. */
  async delete(asked: Asked): Promise<Told> {
    const name = asked.params['templateID']!;
    if (knownTemplates.includes(name)) throw notSupported('Deleting a template through this API is');
    if (await this.#lifecycle.deleteSnapshot(asked, name)) return { status: 204 };
    throw new E2bError(404, `template '${name.slice(0, 100)}' not found`);
  }

  #get(name: string): string {
    if (knownTemplates.includes(name)) return name;
    throw new E2bError(404, `template '${name.slice(0, 100)}' not found`);
  }
}
