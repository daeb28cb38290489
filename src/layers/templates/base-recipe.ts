/**
 * The recipe of `base`, the template for agents: a small Debian with the tools they expect, an ordinary user `user` who may become root, and
 * this program's own Node.
 */
import type { TemplateDefaults } from '../../protocol/index.ts';
import type { BuildPlan, PlanStep } from './build-plan.ts';

export const baseName = 'base';

const packages = [
  'bash',
  'ca-certificates',
  'curl',
  'git',
  'less',
  // What Node needs.
  'libatomic1',
  'libstdc++6',
  'ncurses-bin',
  'passwd',
  'procps',
  'python3',
  'sudo',
  'xz-utils',
];

/** As root, on a root made of the packages above. */
const setUp = `set -eu
groupadd --gid 1000 user
useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash user
printf 'user ALL=(ALL:ALL) NOPASSWD:ALL\\n' > /etc/sudoers.d/user
chmod 0440 /etc/sudoers.d/user
ln -sf python3 /usr/bin/python
mkdir -p /code
chmod 0777 /code /usr/local
find /usr/local -type d -exec chmod 0777 {} +
`;

const defaults: TemplateDefaults = { env: {}, workdir: '/home/user', user: 'user', start: null };

/** `nodeProgram` is the Node that goes into it. */
export function baseRecipe(options: { readonly nodeProgram: string }): BuildPlan {
  const root = { user: 'root', workdir: '/', env: {}, hasNetwork: false } as const;
  const steps: readonly PlanStep[] = [
    { kind: 'run', command: ['/bin/sh', '-c', setUp], ...root },
    { kind: 'machineFile', path: options.nodeProgram, to: '/usr/local/bin/node', mode: 0o755 },
  ];
  return { origin: { kind: 'debian', packages }, stepCount: steps.length, steps: () => ({ steps, defaults }) };
}
