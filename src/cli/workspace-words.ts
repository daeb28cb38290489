/** Words of the command line that are about workspaces, taken apart. */
import { InvalidArgumentError } from 'commander';

export interface WorkspaceWanted {
  readonly workspace: string;
  readonly path?: string;
  readonly version?: number;
}

/** `NAME[:PATH][@VERSION]`, repeatable. */
export function collectWorkspace(text: string, earlier: readonly WorkspaceWanted[] = []): readonly WorkspaceWanted[] {
  const found = /^([A-Za-z0-9][A-Za-z0-9._-]*)(?::(\/.*?))?(?:@(\d{1,15}))?$/s.exec(text);
  if (found === null) {
    throw new InvalidArgumentError('A workspace is NAME, NAME:/PATH, NAME@VERSION or NAME:/PATH@VERSION.');
  }
  const [, workspace, path, version] = found;
  const wanted = {
    workspace: workspace!,
    ...(path !== undefined && { path }),
    ...(version !== undefined && { version: Number(version) }),
  };
  return [...earlier, wanted];
}

export function parseAuthor(text: string): { readonly name: string; readonly email: string } {
  const found = /^\s*([^<>]+?)\s*<([^<>\s]+)>\s*$/.exec(text);
  if (found === null) throw new InvalidArgumentError('An author is "Name <address>".');
  return { name: found[1]!, email: found[2]! };
}

export function parseTrailer(
  text: string,
  earlier: readonly { readonly name: string; readonly value: string }[] = [],
): readonly { readonly name: string; readonly value: string }[] {
  const at = text.indexOf('=');
  if (at <= 0 || at === text.length - 1) throw new InvalidArgumentError('A trailer is NAME=VALUE.');
  return [...earlier, { name: text.slice(0, at), value: text.slice(at + 1) }];
}
