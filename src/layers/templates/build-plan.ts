/** What a build does, step by step, whatever it was told in: a definition file, a list of packages, or the recipe of `base`. */
import type { Command, TemplateDefaults } from '../../protocol/index.ts';

export type PlanOrigin =
  | { readonly kind: 'debian'; readonly packages: readonly string[] }
  /** Another template of the team. */
  | { readonly kind: 'template'; readonly name: string }
  /** Of a registry; null: the archive that came with the order. */
  | { readonly kind: 'image'; readonly reference: string | null };

export type PlanStep =
  | {
      readonly kind: 'run';
      readonly command: Command;
      readonly user: string;
      readonly workdir: string;
      readonly env: Readonly<Record<string, string>>;
      readonly hasNetwork: boolean;
    }
  /** From the files that came with the definition. */
  | { readonly kind: 'copy'; readonly from: string; readonly to: string; readonly owner: string | null }
  /** A file of this machine that the recipe of `base` takes; no definition can ask for it. */
  | { readonly kind: 'machineFile'; readonly path: string; readonly to: string; readonly mode: number };

export interface BuildPlan {
  readonly origin: PlanOrigin;
  /** Given what the origin has. */
  readonly steps: (inherited: TemplateDefaults) => {
    readonly steps: readonly PlanStep[];
    readonly defaults: TemplateDefaults;
  };
  readonly stepCount: number;
}

/** How a step is shown. */
export function describeStep(step: PlanStep): string {
  switch (step.kind) {
    case 'run':
      return `run ${typeof step.command === 'string' ? step.command.trim() : step.command.join(' ')}`;
    case 'copy':
      return `copy ${step.from} to ${step.to}`;
    case 'machineFile':
      return `copy ${step.path} of this machine to ${step.to}`;
  }
}

/** What a root made of packages has of its own. */
export const debianDefaults: TemplateDefaults = { env: {}, workdir: '/workspace', user: 'root', start: null };
