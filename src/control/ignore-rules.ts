/**
 * What `.gitignore` files name, as git reads them: a later rule wins over an earlier one, a deeper file over one above it, `!` takes back, a
 * slash binds to the directory of the file, `**` spans directories. What is in an ignored directory cannot be taken back. `.git` is always left out.
 */
interface Rule {
  readonly pattern: RegExp;
  readonly isNegative: boolean;
  readonly isForDirectories: boolean;
}

export class IgnoreRules {
  /** By the directory of their file: '' or `a/b/`. */
  readonly #rules = new Map<string, readonly Rule[]>();

  /** Texts by path, relative to the root: `.gitignore`, `a/.gitignore`. */
  constructor(texts: ReadonlyMap<string, string>) {
    for (const [path, text] of texts) {
      const directory = path.slice(0, path.length - '.gitignore'.length);
      this.#rules.set(directory, text.split('\n').flatMap(parseRule));
    }
  }

  isIgnored(path: string, isDirectory: boolean): boolean {
    const parts = path.split('/');
    for (let depth = 1; depth <= parts.length; depth++) {
      const isLast = depth === parts.length;
      if (this.#isNamed(parts.slice(0, depth), isLast ? isDirectory : true)) return true;
    }
    return false;
  }

  #isNamed(parts: readonly string[], isDirectory: boolean): boolean {
    if (parts.at(-1) === '.git') return true;
    let isIgnored = false;
    for (let depth = 0; depth < parts.length; depth++) {
      const directory = parts
        .slice(0, depth)
        .map((part) => `${part}/`)
        .join('');
      const below = parts.slice(depth).join('/');
      for (const rule of this.#rules.get(directory) ?? []) {
        if (rule.isForDirectories && !isDirectory) continue;
        if (rule.pattern.test(below)) isIgnored = !rule.isNegative;
      }
    }
    return isIgnored;
  }
}

function parseRule(line: string): Rule[] {
  let text = line.replace(/\r$/, '').replace(/(?<!\\)\s+$/, '');
  if (text === '' || text.startsWith('#')) return [];
  const isNegative = text.startsWith('!');
  if (isNegative) text = text.slice(1);
  const isForDirectories = text.endsWith('/');
  if (isForDirectories) text = text.slice(0, -1);
  // A slash that is not at the end binds the pattern to the directory of its file.
  const isBound = text.includes('/');
  if (text.startsWith('/')) text = text.slice(1);
  if (text === '') return [];
  return [{ pattern: patternOf(text, isBound), isNegative, isForDirectories }];
}

function patternOf(text: string, isBound: boolean): RegExp {
  let source = '';
  for (let at = 0; at < text.length; ) {
    const rest = text.slice(at);
    const [piece, length] = pieceOf(rest, at === 0);
    source += piece;
    at += length;
  }
  return new RegExp(`^${isBound ? '' : '(?:.*/)?'}${source}$`, 's');
}

/** One piece of a pattern as a regular expression, and how long it is in the pattern. */
function pieceOf(rest: string, isFirst: boolean): readonly [source: string, length: number] {
  if (isFirst && rest.startsWith('**/')) return ['(?:.*/)?', 3];
  if (rest.startsWith('/**/')) return ['/(?:.*/)?', 4];
  if (rest === '/**') return ['/.*', 3];
  if (rest.startsWith('**')) return ['[^/]*', 2];
  if (rest.startsWith('*')) return ['[^/]*', 1];
  if (rest.startsWith('?')) return ['[^/]', 1];
  const choice = /^\[(!|\^)?((?:\\.|[^\]\\])+)\]/s.exec(rest);
  if (choice !== null) {
    const set = choice[2]!.replaceAll(/[[\]^]/g, '\\$&');
    return [`(?!/)[${choice[1] === undefined ? '' : '^'}${set}]`, choice[0].length];
  }
  if (rest.startsWith('\\') && rest.length > 1) return [escaped(rest[1]!), 2];
  return [escaped(rest[0]!), 1];
}

function escaped(character: string): string {
  return character.replaceAll(/[.*+?^${}()|[\]\\/]/g, '\\$&');
}
