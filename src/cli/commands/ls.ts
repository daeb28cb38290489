import type { StateKind } from '../../protocol/index.ts';
import { collectPair, collectState, parseCount } from '../argument-parsers.ts';
import { listHere } from '../checkout-list.ts';
import type { AddCommand } from '../command-adder.ts';
import { noteMore, pageOf } from '../page-options.ts';
import { readablePairs, readableTable, readableWhen } from '../readable.ts';

interface Options {
  readonly state?: StateKind[];
  readonly metadata?: Record<string, string>;
  readonly namePrefix?: string;
  readonly mine?: boolean;
  readonly limit?: number;
  readonly cursor?: string;
  readonly quiet?: boolean;
  readonly here?: boolean;
  readonly allRepos?: boolean;
}

export const addLs: AddCommand = (program, actions) => {
  program
    .command('ls')
    .alias('list')
    .description('list sandboxes, newest first')
    .option('-s, --state <state>', 'only in this state; repeatable', collectState)
    .option('-m, --metadata <key=value>', 'only with this metadata; repeatable', collectPair)
    .option('--name-prefix <text>', 'only with names that begin so')
    .option('--mine', 'only those made by this key or its user')
    .option('--limit <count>', 'of one page', parseCount)
    .option('--cursor <cursor>', 'the next page')
    .option('-q, --quiet', 'ids only')
    .option('--here', 'only those of this repository, with what is known of them here')
    .option('--all-repos', 'with --here: of every repository')
    .action(
      actions.of<Options, []>(async (call) => {
        const { state, metadata, namePrefix, mine, quiet, here, allRepos } = call.options;
        if (here || allRepos) return await listHere(call, { allRepos: allRepos ?? false });
        const page = await (await call.client()).sandboxes.list({
          ...(state && { state }),
          ...(metadata && { metadata }),
          ...(namePrefix !== undefined && { namePrefix }),
          ...(mine && { mine }),
          ...pageOf(call.options),
        });
        const nowMs = call.io.nowMs();
        await call.print(page, () => {
          if (quiet) return page.items.map((view) => `${view.id}\n`).join('');
          if (page.items.length === 0) return 'No sandboxes. Make one with: atoll create\n';
          const rows = page.items.map((view) => [
            view.id,
            view.name ?? '-',
            view.reachable ? view.state : `${view.state}?`,
            readableWhen(view.createdAt, nowMs),
            readableWhen(view.expiresAt, nowMs),
            view.template,
            view.lease?.holder ?? '-',
            readablePairs(view.metadata),
          ]);
          return readableTable(['ID', 'NAME', 'STATE', 'CREATED', 'EXPIRES', 'TEMPLATE', 'LEASE', 'METADATA'], rows);
        });
        await noteMore(call, page);
      }),
    );
};
