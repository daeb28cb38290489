/** Labels: extended attributes of a file in the user's name space, whose `user.` nobody outside sees. The sandbox can write any. */
import { isUtf8 } from 'node:buffer';
import { brokenProtocol, callWorker, type FileContext } from './call.ts';
import { requestFrames } from './wire.ts';

const space = 'user.';
const labelsMax = 1_000;

/** Those that are no text are left out. */
export async function labelsOf(context: FileContext, path: string): Promise<Readonly<Record<string, string>>> {
  const found = new Map<string, string>();
  return await callWorker(context, {
    path,
    isChange: false,
    frame: (request) => {
      found.clear();
      return requestFrames.labels(request, path);
    },
    take: (answer) => {
      if (answer.kind === 'done') return { result: Object.fromEntries(found) };
      if (answer.kind !== 'data' || found.size >= labelsMax) throw brokenProtocol(answer);
      const middle = answer.bytes.indexOf(0);
      const name = answer.bytes.subarray(0, Math.max(0, middle)).toString('utf8');
      const value = answer.bytes.subarray(middle + 1);
      if (!name.startsWith(space)) throw brokenProtocol(answer);
      if (isUtf8(value)) found.set(name.slice(space.length), value.toString('utf8'));
      return undefined;
    },
  });
}

export async function setLabels(
  context: FileContext,
  wanted: { readonly path: string; readonly prefix: string; readonly labels: Readonly<Record<string, string>> },
): Promise<void> {
  const { path } = wanted;
  const named = Object.entries(wanted.labels).map(([name, value]) => [`${space}${name}`, value] as const);
  const options = { path, prefix: `${space}${wanted.prefix}`, labels: Object.fromEntries(named) };
  await callWorker(context, {
    path,
    isChange: true,
    frame: (request) => requestFrames.setLabels(request, options),
    take: (answer) => {
      if (answer.kind !== 'done') throw brokenProtocol(answer);
      return { result: undefined };
    },
  });
}
