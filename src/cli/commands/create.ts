import { collectPair, parseCores, parseCount, parseDurationOrNever, parseSize } from '../argument-parsers.ts';
import type { AddCommand } from '../command-adder.ts';
import { withIdempotencyKey } from '../command-adder.ts';
import { collectRule, type NetworkOptions, networkOf, parseMode, ruleHelp } from '../network-options.ts';
import { collectWorkspace, type WorkspaceWanted } from '../workspace-words.ts';

interface Options extends NetworkOptions {
  readonly template?: string;
  readonly metadata?: Record<string, string>;
  readonly env?: Record<string, string>;
  readonly memory?: number;
  readonly cpus?: number;
  readonly processes?: number;
  readonly disk?: number;
  readonly checkpoint?: string;
  readonly pauseOnExpiry?: boolean;
  readonly autoResume?: boolean;
  readonly keepCheckpoints?: number;
  readonly expiresIn?: number | null;
  readonly get?: boolean;
  readonly newPrivileges: boolean;
  readonly workspace?: readonly WorkspaceWanted[];
}

/** Prints the id and nothing else, so that it can be used in place: `atoll exec $(atoll create) -- id`. */
export const addCreate: AddCommand = (program, actions) => {
  withIdempotencyKey(program.command('create'))
    .description('create a sandbox and print its id')
    .argument('[name]', 'a name, unique in the team')
    .option('--get', 'if the name is taken, that sandbox is the answer')
    .option('--template <name>', 'what it starts from')
    .option('--checkpoint <id>', 'begin with its files; what is not given is as it has it')
    .option('--workspace <name[:path][@version]>', 'in place from its first moment; repeatable', collectWorkspace)
    .option('-m, --metadata <key=value>', 'repeatable', collectPair)
    .option('-e, --env <name=value>', 'for every command in it; repeatable', collectPair)
    .option('--memory <size>', 'such as 512m, 2g', parseSize)
    .option('--cpus <cores>', 'such as 0.5, 2', parseCores)
    .option('--processes <count>', 'how many processes at most', parseCount)
    .option('--disk <size>', 'what its own files may take, such as 2g; not on every storage', parseSize)
    .option('--expires-in <time>', 'such as 30m, 2h, never', parseDurationOrNever)
    .option('--pause-on-expiry', 'at its deadline it stands still instead of ending')
    .option('--auto-resume', 'commands, files and previews resume it when it is paused')
    .option('--keep-checkpoints <count>', 'of its checkpoints only the newest', parseCount)
    .option('--network <mode>', 'none, or full', parseMode)
    .option('--allow <rule>', `before deny, and the only way to private ranges; ${ruleHelp}`, collectRule)
    .option('--deny <rule>', `unless allowed; ${ruleHelp}`, collectRule)
    .option('--no-new-privileges', 'setuid programs such as sudo give nothing inside')
    .action(
      actions.of<Options, [name?: string]>(async (call, name) => {
        const { options } = call;
        const network = networkOf(options);
        const client = await call.client();
        const settings = {
          ...(options.template !== undefined && { template: options.template }),
          ...(options.metadata && { metadata: options.metadata }),
          ...(options.env && { env: options.env }),
          ...(options.expiresIn !== undefined && { expiresInMs: options.expiresIn }),
          limits: {
            ...(options.memory !== undefined && { memoryBytes: options.memory }),
            ...(options.cpus !== undefined && { cpuMillis: options.cpus }),
            ...(options.processes !== undefined && { processes: options.processes }),
            ...(options.disk !== undefined && { diskBytes: options.disk }),
          },
          ...(options.checkpoint !== undefined && { checkpoint: options.checkpoint }),
          ...(options.pauseOnExpiry && { onExpiry: 'pause' as const }),
          ...(options.autoResume && { autoResume: true }),
          ...(options.keepCheckpoints !== undefined && { keepCheckpoints: options.keepCheckpoints }),
          ...(!options.newPrivileges && { noNewPrivileges: true }),
          ...(network && { network }),
          ...(options.workspace && { workspaces: [...options.workspace] }),
          ...call.conditions(),
        };
        const isGet = options.get === true && name !== undefined;
        const sandbox = isGet
          ? await client.sandboxes.getOrCreate({ ...settings, name })
          : await client.sandboxes.create({ ...settings, ...(name !== undefined && { name }) });
        await call.print(sandbox.view, () => `${sandbox.id}\n`);
      }),
    );
};
