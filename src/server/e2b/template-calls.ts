/** Whether a template is there, as far as E2B's clients ask. */
import { E2bError } from './e2b-error.ts';
import type { Asked, Told } from './sandbox-calls.ts';
import { knownTemplates } from './template-names.ts';

export class TemplateCalls {
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

  #get(name: string): string {
    if (knownTemplates.includes(name)) return name;
    throw new E2bError(404, `template '${name.slice(0, 100)}' not found`);
  }
}
