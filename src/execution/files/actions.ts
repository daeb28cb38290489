/** What is done with files without a stream: one request each, and a look at the result where the caller gets one. */
import { constants } from 'node:os';
import { assertNever } from '../../base/index.ts';
import type { FileAction, FileActionKind, FileAnswers, FileEntry, FileList } from '../../protocol/index.ts';
import { resolveOwner } from './accounts.ts';
import { brokenProtocol, callWorker, type FileContext, type SmallRequest } from './call.ts';
import { absolutePath, entryBelow, entryOf } from './entry.ts';
import { labelsOf, setLabels } from './labels.ts';
import { keep, requestFrames } from './wire.ts';
import type { RequestAnswer } from './worker.ts';

const newDirectoryMode = 0o755;
const { EEXIST, ENOTEMPTY, EISDIR, ENOSPC, EROFS } = constants.errno;
const atTarget: ReadonlySet<number> = new Set([EEXIST, ENOTEMPTY, EISDIR, ENOSPC, EROFS]);

export async function fileAction<Kind extends FileActionKind>(
  context: FileContext,
  action: Extract<FileAction, { kind: Kind }>,
): Promise<FileAnswers[Kind]> {
  return (await perform(context, action)) as FileAnswers[Kind];
}

async function perform(context: FileContext, action: FileAction): Promise<FileAnswers[FileActionKind]> {
  switch (action.kind) {
    case 'stat':
      return await stat(context, absolutePath(action.path), { follow: action.followLinks });
    case 'list':
      return await list(context, action);
    case 'makeDirectory': {
      const path = absolutePath(action.path);
      const { parents, mode } = action;
      await change(context, path, (request) =>
        requestFrames.make(request, { path, parents, mode: mode ?? newDirectoryMode }),
      );
      return await stat(context, path, { follow: true });
    }
    case 'move':
    case 'copy': {
      const from = absolutePath(action.from);
      const to = absolutePath(action.to);
      // What is in the way is at the other end.
      const pathOf = (errno: number) => (atTarget.has(errno) ? to : from);
      await change(context, pathOf, (request) =>
        action.kind === 'move'
          ? requestFrames.move(request, { from, to, replace: action.replace })
          : requestFrames.copy(request, { from, to, recursive: action.recursive, replace: action.replace }),
      );
      return await stat(context, to, { follow: false });
    }
    case 'remove': {
      const path = absolutePath(action.path);
      const { recursive } = action;
      await change(context, path, (request) => requestFrames.remove(request, { path, recursive }));
      return null;
    }
    case 'changeAttributes': {
      const path = absolutePath(action.path);
      const { uid, gid } = action.owner === null ? { uid: keep, gid: keep } : await resolveOwner(context, action.owner);
      const mode = action.mode ?? keep;
      await change(context, path, (request) => requestFrames.mode(request, { path, mode, uid, gid }));
      return await stat(context, path, { follow: true });
    }
    case 'labels':
      return await labelsOf(context, absolutePath(action.path));
    case 'setLabels':
      await setLabels(context, { ...action, path: absolutePath(action.path) });
      return null;
    default:
      assertNever(action);
  }
}

export async function stat(
  context: FileContext,
  path: string,
  options: { readonly follow: boolean },
): Promise<FileEntry> {
  return await callWorker(context, {
    path,
    isChange: false,
    frame: (request) => requestFrames.stat(request, { path, follow: options.follow }),
    take: (answer) => {
      if (answer.kind !== 'stat') throw brokenProtocol(answer);
      return { result: entryOf(path, answer.stat, answer.linkTarget) };
    },
  });
}

export async function change(
  context: FileContext,
  path: SmallRequest<unknown>['path'],
  frame: (request: number) => Buffer,
): Promise<void> {
  await callWorker(context, { path, isChange: true, frame, take: takeDone });
}

function takeDone(answer: RequestAnswer): { readonly result: undefined } {
  if (answer.kind !== 'done') throw brokenProtocol(answer);
  return { result: undefined };
}

async function list(context: FileContext, action: Extract<FileAction, { kind: 'list' }>): Promise<FileList> {
  const path = absolutePath(action.path);
  const after = Buffer.from(action.after ?? '', 'base64');
  // One more than asked for tells whether there is more.
  const limit = action.limit + 1;
  let entries: FileEntry[] = [];
  const relatives: Buffer[] = [];
  return await callWorker<FileList>(context, {
    path,
    isChange: false,
    frame: (request) => {
      entries = [];
      relatives.length = 0;
      return requestFrames.list(request, { path, depth: action.depth, limit, after });
    },
    take: (answer) => {
      if (answer.kind === 'entry' && entries.length < limit) {
        entries.push(entryBelow(path, answer.path, answer.stat, answer.linkTarget));
        relatives.push(Buffer.from(answer.path));
        return undefined;
      }
      if (answer.kind !== 'done') throw brokenProtocol(answer);
      const isCut = entries.length > action.limit;
      const next = isCut ? relatives[action.limit - 1]!.toString('base64') : null;
      return { result: { entries: entries.slice(0, action.limit), next } };
    },
  });
}
