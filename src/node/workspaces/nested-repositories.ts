/**
 * Directories with a `.git` of their own, below the checkout's; one in which the base has files is a directory like any. What runs in the sandbox
 * decides how many there are, so each path is looked at once, whatever the number of the others.
 */
const suffix = '/.git';

export function nestedRepositories(paths: readonly string[], known: Iterable<string>): ReadonlySet<string> {
  const nested = paths.filter((path) => path.endsWith(suffix)).map((path) => path.slice(0, -suffix.length));
  if (nested.length === 0) return new Set();
  const kept = directoriesOf(known);
  return new Set(nested.filter((directory) => !kept.has(directory)));
}

/** Every directory that one of these is in. */
function directoriesOf(paths: Iterable<string>): ReadonlySet<string> {
  const directories = new Set<string>();
  for (const path of paths) {
    for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) {
      const directory = path.slice(0, at);
      if (directories.has(directory)) break;
      directories.add(directory);
    }
  }
  return directories;
}
