/** Writes a definition to start from. Never over one that is there. */
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { definitionNames, findCheckout, parseDefinition } from '../../checkout/index.ts';
import { CliError } from '../cli-error.ts';
import type { AddCommand } from '../command-adder.ts';
import { exitCodes } from '../exit-codes.ts';

const fileName = 'atoll.yml';
/** By the file that tells of them. */
const setupByFile: readonly (readonly [file: string, step: string])[] = [
  ['package-lock.json', 'npm ci'],
  ['pnpm-lock.yaml', 'pnpm install --frozen-lockfile'],
  ['yarn.lock', 'yarn install --immutable'],
  ['requirements.txt', 'pip install -r requirements.txt'],
  ['go.mod', 'go mod download'],
  ['Cargo.lock', 'cargo fetch'],
];

export const addInit: AddCommand = (program, actions) => {
  program
    .command('init')
    .description('write an atoll.yml for this checkout, to start from')
    .action(
      actions.of<object, []>(async (call) => {
        const { root } = await findCheckout({ cwd: call.io.cwd, env: call.io.env });
        const there = definitionNames.find((name) => existsSync(join(root, name)));
        if (there !== undefined) {
          throw new CliError(`There is a definition already: ${join(root, there)}`, {
            exitCode: exitCodes.conflict,
            code: 'definition_exists',
            hint: 'Change it, or remove it first.',
          });
        }
        const text = definitionText(setupByFile.find(([file]) => existsSync(join(root, file)))?.[1]);
        // What we write ourselves is valid, or this is a bug.
        parseDefinition(text, { name: fileName, readEnvFile: () => '' });
        const path = join(root, fileName);
        await writeFile(path, text, { flag: 'wx' });
        await call.print({ path }, () => `${path}\nNow try: atoll exec -- COMMAND\n`);
      }),
    );
};

function definitionText(step: string | undefined): string {
  return `# The sandbox of this checkout; "atoll exec -- COMMAND" uses it.
template: host

# Done once per sandbox, and again when they change.
${step === undefined ? '# setup:\n#   - npm ci' : `setup:\n  - ${step}`}

# limits: { memory: 2g, cpus: 2 }
# env: { NODE_ENV: test }
# envFiles: [.env.sandbox]

# atoll bg start web
# background:
#   web: { run: npm run dev, port: 3000 }
`;
}
