import { parseCount } from '../argument-parsers.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import { readablePairs, readableTable, readableWhen } from '../readable.ts';

interface Options {
  readonly history?: boolean;
  readonly limit?: number;
}

export const addMetadata: AddCommand = (program, actions) => {
  withConditions(program.command('metadata'))
    .description('show or change the metadata of a sandbox')
    .argument('<sandbox>', 'id or name')
    .argument('[change...]', 'KEY=VALUE sets, KEY= removes')
    .option('--history', 'show what changed, newest first')
    .option('--limit <count>', 'of the history', parseCount)
    .action(
      actions.of<Options, [sandbox: string, changes: string[]]>(async (call, name, changes) => {
        const { history, limit } = call.options;
        const sandbox = await call.sandbox(name);
        if (history) {
          const found = await sandbox.metadataHistory(limit === undefined ? {} : { limit });
          const rows = found.items.map((item) => [
            String(item.version),
            readableWhen(item.at, call.io.nowMs()),
            item.by,
            readablePairs(textsOf(item.changes)),
          ]);
          return call.print(found, () => readableTable(['VERSION', 'WHEN', 'BY', 'CHANGES'], rows));
        }
        const metadata =
          changes.length === 0
            ? await sandbox.getMetadata()
            : await sandbox.patchMetadata(patchOf(changes), call.conditions());
        await call.print(metadata, () => readableTable(['KEY', 'VALUE'], Object.entries(metadata.metadata)));
      }),
    );
};

function patchOf(changes: readonly string[]): Record<string, string | null> {
  return Object.fromEntries(
    changes.map((change) => {
      const equalsAt = change.indexOf('=');
      return equalsAt < 1
        ? [change.replace(/^=/, ''), null]
        : [change.slice(0, equalsAt), change.slice(equalsAt + 1) || null];
    }),
  );
}

function textsOf(changes: Readonly<Record<string, string | null>>): Record<string, string> {
  return Object.fromEntries(Object.entries(changes).map(([key, value]) => [key, value ?? '(removed)']));
}
