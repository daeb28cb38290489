/** Which events of a watch its caller hears of. `armed` and `overflow` always pass: they are about the watch itself. */
import { matchesGlob, posix } from 'node:path';
import type { FileEvent, FileEventView } from '../protocol/index.ts';

interface Filter {
  /** Of the watch, as the caller gave it. */
  readonly path: string;
  readonly include: readonly string[] | undefined;
  readonly exclude: readonly string[] | undefined;
}

export async function* filterEvents(
  events: AsyncIterable<FileEvent>,
  filter: Filter,
): AsyncGenerator<FileEventView, void> {
  const absolute = filter.path.startsWith('/') ? filter.path : `/workspace/${filter.path}`;
  const full = (path: string) => (path === '' ? posix.normalize(absolute) : posix.join(absolute, path));
  for await (const event of events) {
    if (!isWanted(event, filter)) continue;
    if (event.kind === 'armed' || event.kind === 'overflow') yield { kind: event.kind };
    else if (event.kind === 'moved') yield { kind: 'moved', path: full(event.path), from: full(event.from) };
    else yield { kind: event.kind, path: full(event.path) };
  }
}

/** A move is wanted when either end is. The node's paths are below what is watched, and so are the globs. */
export function isWanted(event: FileEvent, filter: Omit<Filter, 'path'>): boolean {
  if (event.kind === 'armed' || event.kind === 'overflow') return true;
  const paths = event.kind === 'moved' ? [event.path, event.from] : [event.path];
  return paths.some((path) => {
    if (filter.exclude?.some((glob) => matches(path, glob))) return false;
    return filter.include === undefined || filter.include.some((glob) => matches(path, glob));
  });
}

/** A glob without a slash is about names at any depth, and one for a directory covers what is in it. */
function matches(path: string, glob: string): boolean {
  const full = glob.includes('/') ? glob.replace(/^\/+/, '') : `**/${glob}`;
  return matchesGlob(path, full) || matchesGlob(path, `${full}/**`);
}
