import { collectText } from '../argument-parsers.ts';
import { type AddCommand, withIdempotencyKey } from '../command-adder.ts';
import { readableFields, readableTable } from '../readable.ts';

export const addWebhooks: AddCommand = (program, actions) => {
  const webhooks = program.command('webhooks').description('where events are delivered');

  withIdempotencyKey(webhooks.command('create'))
    .description('deliver events to a URL; prints the secret, which is shown only now')
    .argument('<target>', 'an http or https URL')
    .option('--kind <kind>', 'only events of this kind; repeatable', collectText)
    .action(
      actions.of<{ readonly kind?: string[] }, [target: string]>(async (call, target) => {
        const { kind } = call.options;
        const body = { url: target, ...(kind && { kinds: kind }) };
        const webhook = await (await call.client()).webhooks.create(body, call.conditions());
        await call.print(webhook, () =>
          readableFields([
            ['Id', webhook.id],
            ['Secret', webhook.secret],
          ]),
        );
      }),
    );

  webhooks
    .command('ls')
    .description('list them and how delivery goes')
    .action(
      actions.of<object, []>(async (call) => {
        const items = await (await call.client()).webhooks.list();
        const rows = items.map((item) => [
          item.id,
          item.url,
          item.kinds.join(',') || 'all',
          String(item.cursor),
          String(item.failures),
          item.lastError ?? '-',
        ]);
        await call.print({ items }, () =>
          readableTable(['ID', 'URL', 'KINDS', 'DELIVERED', 'FAILURES', 'LAST ERROR'], rows),
        );
      }),
    );

  withIdempotencyKey(webhooks.command('rm'))
    .description('end delivery')
    .argument('<webhook>', 'its id')
    .action(
      actions.of<object, [webhookId: string]>(async (call, webhookId) => {
        await (await call.client()).webhooks.delete(webhookId, call.conditions());
        await call.print({ deleted: webhookId }, () => `${webhookId}\n`);
      }),
    );
};
