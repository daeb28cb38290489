/** The routes of files. What travels as headers here (ranges, etags) is plain data to control. */
import { type FileContent, PlatformError, routes } from '../protocol/index.ts';
import { sendBytes } from './byte-answer.ts';
import { parseRange } from './byte-range.ts';
import type { ControlPort, FileExpectation } from './control-port.ts';
import type { EventStreams } from './event-stream.ts';
import type { Exchange } from './exchange.ts';
import type { Handle } from './route-binding.ts';

export function bindFileRoutes(handle: Handle, files: ControlPort['files'], streams: EventStreams): void {
  handle(routes.readFile, async ({ caller, params, conditions, query, exchange }) => {
    const range = parseRange(exchange.request.headers.range);
    const wanted = { ...query, offset: range?.offset ?? 0, length: range?.length ?? null };
    const content = await files.read(caller, params.sandboxId, conditions, wanted, exchange.ending);
    const isPart = range !== undefined;
    return await sendBytes(exchange, content.bytes, {
      status: isPart ? 206 : 200,
      headers: contentHeaders(content, isPart),
    });
  });
  handle(routes.writeFile, ({ caller, params, conditions, query, content, exchange }) =>
    files.write(
      caller,
      params.sandboxId,
      conditions,
      { ...query, expected: expectationOf(exchange) },
      content,
      exchange.disconnected,
    ),
  );
  handle(routes.statFile, ({ caller, params, conditions, query }) =>
    files.stat(caller, params.sandboxId, conditions, query),
  );
  handle(routes.getFileLabels, ({ caller, params, conditions, query }) =>
    files.labels(caller, params.sandboxId, conditions, query),
  );
  handle(routes.setFileLabels, ({ caller, params, conditions, body }) =>
    files.setLabels(caller, params.sandboxId, conditions, body),
  );
  handle(routes.listFiles, ({ caller, params, conditions, query }) =>
    files.list(caller, params.sandboxId, conditions, query),
  );
  handle(routes.listFileChanges, ({ caller, params, conditions, query }) =>
    files.changes(caller, params.sandboxId, conditions, query),
  );
  handle(routes.makeDirectory, ({ caller, params, conditions, body }) =>
    files.makeDirectory(caller, params.sandboxId, conditions, body),
  );
  handle(routes.moveFile, ({ caller, params, conditions, body }) =>
    files.move(caller, params.sandboxId, conditions, body),
  );
  handle(routes.copyFile, ({ caller, params, conditions, body }) =>
    files.copy(caller, params.sandboxId, conditions, body),
  );
  handle(routes.removeFile, ({ caller, params, conditions, query }) =>
    files.remove(caller, params.sandboxId, conditions, query),
  );
  handle(routes.changeFileAttributes, ({ caller, params, conditions, body }) =>
    files.changeAttributes(caller, params.sandboxId, conditions, body),
  );
  handle(routes.downloadTree, async ({ caller, params, conditions, query, exchange }) => {
    const { bytes } = await files.downloadTree(caller, params.sandboxId, conditions, query, exchange.ending);
    return await sendBytes(exchange, bytes, { status: 200, headers: { 'Content-Type': 'application/x-tar' } });
  });
  handle(routes.uploadTree, ({ caller, params, conditions, query, content, exchange }) =>
    files.uploadTree(caller, params.sandboxId, conditions, query, content, exchange.disconnected),
  );
  handle(routes.watchFiles, ({ caller, params, conditions, query, exchange }) =>
    streams.answerWith(exchange, files.watch(caller, params.sandboxId, conditions, query, exchange.ending)),
  );
}

function contentHeaders(content: FileContent, isPart: boolean): Record<string, string> {
  const { entry, offset, length } = content;
  const last = offset + (length ?? 0) - 1;
  return {
    'Content-Type': 'application/octet-stream',
    'Accept-Ranges': 'bytes',
    ETag: `"${entry.etag}"`,
    'Last-Modified': new Date(entry.modifiedAtMs).toUTCString(),
    'Atoll-File-Mode': entry.mode.toString(8),
    ...(length !== null && { 'Content-Length': String(length) }),
    ...(isPart && length !== null && { 'Content-Range': `bytes ${offset}-${last}/${entry.sizeBytes}` }),
  };
}

function expectationOf({ request: { headers } }: Exchange): FileExpectation {
  const match = headers['if-match'];
  const noneMatch = headers['if-none-match'];
  if (match !== undefined && noneMatch !== undefined) {
    throw new PlatformError('invalid_request', 'If-Match and If-None-Match exclude each other.');
  }
  if (noneMatch !== undefined) {
    if (noneMatch.trim() === '*') return { kind: 'absent' };
    throw new PlatformError('invalid_request', 'If-None-Match takes * here: that there is no file yet.');
  }
  if (match === undefined) return { kind: 'any' };
  const etag = /^"?([0-9A-Za-z._-]{1,100})"?$/.exec(match.trim())?.[1];
  if (etag === undefined)
    throw new PlatformError('invalid_request', 'If-Match takes one etag, as it stood in the ETag.');
  return { kind: 'etag', etag };
}
