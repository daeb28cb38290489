/** The calls about templates as they stand on HTTP: JSON both ways, with pieces of archives as base64; what a build says is a stream of items. */
import { z } from 'zod';
import { idSchema, networkPolicy } from '../../protocol/index.ts';
import type { Call, Stream } from './process-server.ts';
import { parseOrder } from './serve-call.ts';

const teamId = z.string();
const buildOrder = z.strictObject({ teamId, buildId: idSchema('build') });
const fromOrder = buildOrder.extend({ after: z.int().nonnegative() });
const templateOrder = z.strictObject({ teamId, name: z.string() });
const startOrder = buildOrder.extend({
  name: z.string(),
  source: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('base') }),
    z.strictObject({ kind: z.literal('debian'), packages: z.array(z.string()) }),
    z.strictObject({ kind: z.literal('definition'), text: z.string(), contextId: idSchema('context').nullable() }),
    z.strictObject({ kind: z.literal('image'), reference: z.string() }),
    z.strictObject({ kind: z.literal('imageArchive'), contextId: idSchema('context') }),
  ]),
  network: networkPolicy,
  mayPull: z.boolean(),
});
const contextOrder = z.strictObject({
  contextId: idSchema('context'),
  offset: z.int().nonnegative(),
  bytes: z.base64().transform((text): Uint8Array => Buffer.from(text, 'base64')),
});

export const templateCalls: Readonly<Record<string, Call>> = {
  buildTemplate: ({ templates }, order) => templates.build(parseOrder(startOrder, order)),
  getBuild: ({ templates }, order) => templates.getBuild(parseOrder(buildOrder, order)),
  readBuild: ({ templates }, order) => templates.readBuild(parseOrder(fromOrder, order)),
  cancelBuild: ({ templates }, order) => templates.cancelBuild(parseOrder(buildOrder, order)),
  appendContext: ({ templates }, order) => templates.appendContext(parseOrder(contextOrder, order)),
  listTemplates: ({ templates }, order) => templates.list(parseOrder(z.strictObject({ teamId }), order)),
  getTemplate: ({ templates }, order) => templates.get(parseOrder(templateOrder, order)),
  removeTemplate: ({ templates }, order) => templates.remove(parseOrder(templateOrder, order)),
};

export const templateStreams: Readonly<Record<string, Stream>> = {
  followBuild: ({ templates }, order, over) => templates.followBuild(parseOrder(fromOrder, order), over),
};
