import type { SandboxView } from '../../protocol/index.ts';
import { sandboxOrHere } from '../checkout-sandbox.ts';
import type { AddCommand } from '../command-adder.ts';
import { readableNetwork } from '../network-options.ts';
import { readableBytes, readableFields, readablePairs, readableWhen } from '../readable.ts';

export const addInfo: AddCommand = (program, actions) => {
  program
    .command('info')
    .description('show one sandbox')
    .argument('[sandbox]', 'id or name; without it, that of this checkout')
    .action(
      actions.of<object, [sandbox?: string]>(async (call, name) => {
        const { view } = await sandboxOrHere(call, name);
        await call.print(view, () => describeSandbox(view, call.io.nowMs()));
      }),
    );
};

export function describeSandbox(view: SandboxView, nowMs: number): string {
  const { limits, lease } = view;
  const disk = limits.diskBytes === null ? 'any disk' : `${readableBytes(limits.diskBytes)} disk`;
  const when = (at: string | null) => (at === null ? 'never' : `${at} (${readableWhen(at, nowMs)})`);
  return readableFields([
    ['Id', view.id],
    ['Name', view.name ?? '-'],
    ['State', view.reason === null ? view.state : `${view.state} (${view.reason})`],
    ['Reachable', view.reachable ? 'yes' : 'no: its node is out of reach, this is what was last known'],
    ['Generation', String(view.generation)],
    ['Version', String(view.version)],
    ['Template', view.template],
    [
      'Limits',
      `${readableBytes(limits.memoryBytes)} memory, ${limits.cpuMillis / 1_000} cores, ${limits.processes} processes, ${disk}`,
    ],
    ['Created', `${when(view.createdAt)} by ${view.createdBy}`],
    ['Expires', view.onExpiry === 'pause' ? `${when(view.expiresAt)}, then pauses` : when(view.expiresAt)],
    ['Network', readableNetwork(view.network)],
    ['Lease', lease === null ? '-' : `${lease.holder}, token ${lease.token}${lease.reason ? `: ${lease.reason}` : ''}`],
    ['Node', view.nodeId],
    ['Metadata', readablePairs(view.metadata)],
    ['Environment', readablePairs(view.env)],
  ]);
}
