/** Ids of names, from the sandbox's own /etc/passwd and /etc/group. The sandbox writes them: bounded, and believed for its own files only. */
import { PlatformError } from '../../protocol/index.ts';
import { brokenProtocol, callWorker, type FileContext } from './call.ts';
import { keep, requestFrames } from './wire.ts';

const accountsMaxBytes = 1024 * 1024;
const idMax = 65_535;

export async function resolveOwner(
  context: FileContext,
  owner: { readonly user: string; readonly group: string | null },
): Promise<{ readonly uid: number; readonly gid: number }> {
  const uid = await idOf(context, owner.user, '/etc/passwd');
  const gid = owner.group === null ? keep : await idOf(context, owner.group, '/etc/group');
  return { uid, gid };
}

async function idOf(context: FileContext, name: string, file: string): Promise<number> {
  const text = /^\d+$/.test(name) ? name : findId(await readAccounts(context, file), name);
  const id = Number(text ?? Number.NaN);
  if (Number.isInteger(id) && id <= idMax) return id;
  throw new PlatformError('user_not_usable', `The sandbox has no user or group "${name}"; nothing was changed.`);
}

export function findId(accounts: string, name: string): string | undefined {
  for (const line of accounts.split('\n')) {
    const fields = line.split(':');
    if (fields[0] === name && /^\d{1,5}$/.test(fields[2] ?? '')) return fields[2];
  }
  return undefined;
}

async function readAccounts(context: FileContext, path: string): Promise<string> {
  let chunks: Buffer[] = [];
  return await callWorker<string>(context, {
    path,
    isChange: false,
    frame: (request) => {
      chunks = [];
      return requestFrames.read(request, { path, offset: 0, length: accountsMaxBytes });
    },
    take: (answer) => {
      if (answer.kind === 'data') chunks.push(Buffer.from(answer.bytes));
      else if (answer.kind === 'done') return { result: Buffer.concat(chunks).toString('utf8') };
      else if (answer.kind !== 'stat') throw brokenProtocol(answer);
      return undefined;
    },
  });
}
