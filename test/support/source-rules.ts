/**
 * Reads TypeScript sources and names what breaks the rules given. Works on text handed in, so that it can be shown made-up
 * violations; it knows the shape of the rules, `test/architecture.test.ts` holds the rules themselves.
 */
import { posix } from 'node:path';
import { parseSync } from 'vite';

export interface SourceFile {
  /** From the repository's root, with slashes: `src/store/store.ts`. */
  readonly path: string;
  readonly text: string;
}

export interface SourceRules {
  /** Each module (a folder in src/) and the modules it may import. */
  readonly imports: Readonly<Record<string, readonly string[]>>;
  /** Packages, by the beginning of their name, that only these modules may import. */
  readonly packagesOnlyIn: Readonly<Record<string, readonly string[]>>;
  /** Text that may stand in a string only in these modules. */
  readonly textOnlyIn: Readonly<Record<string, readonly string[]>>;
  /** Members of `process` that only these modules may use. */
  readonly processOnlyIn: Readonly<Record<string, readonly string[]>>;
  /** Modules that run in a browser: no `node:` import, no `process`, no `Buffer`. */
  readonly browserModules: readonly string[];
  readonly lineLimit: number;
  /** In the comment at the top of a longer file. */
  readonly lineLimitExcuse: string;
}

interface Node {
  readonly type: string;
  readonly start: number;
  readonly [key: string]: unknown;
}

/** One line per violation, `path:line: what`, in the order of the files. */
export function findViolations(files: readonly SourceFile[], rules: SourceRules): readonly string[] {
  return files.flatMap((file) => violationsOf(file, rules));
}

function violationsOf(file: SourceFile, rules: SourceRules): readonly string[] {
  const found: string[] = [];
  const report = (node: Node, message: string) =>
    found.push(`${file.path}:${lineAt(file.text, node.start)}: ${message}`);

  const module = moduleOf(file.path);
  const isTest = file.path.endsWith('.test.ts');
  if (module === undefined || !Object.hasOwn(rules.imports, module)) {
    return [`${file.path}:1: is in no module of the import table`];
  }
  const { program, errors } = parseSync(file.path, file.text, { lang: 'ts', sourceType: 'module' });
  if (errors.length > 0) return [`${file.path}:1: does not parse: ${errors[0]?.message}`];

  const nodes = [...walk(program as unknown as Node)];
  for (const node of nodes) {
    const specifier = importedBy(node);
    if (specifier !== undefined) {
      for (const message of importViolations({ file, module, isTest, specifier, rules })) report(node, message);
    }
    if (node.type === 'TSAnyKeyword') report(node, 'uses `any`');
    if (node.type === 'TSEnumDeclaration') report(node, 'declares an enum');
    if (!isTest) for (const message of absenceViolations({ node, module, rules })) report(node, message);
  }
  const lines = file.text.split('\n').length - 1;
  const topComment = file.text.slice(0, file.text.indexOf('*/') + 1);
  if (lines > rules.lineLimit && !topComment.includes(rules.lineLimitExcuse)) {
    found.push(
      `${file.path}:1: has ${lines} lines, over ${rules.lineLimit}, and its top comment does not say "${rules.lineLimitExcuse} …"`,
    );
  }
  return found;
}

interface ImportContext {
  readonly file: SourceFile;
  readonly module: string;
  readonly isTest: boolean;
  readonly specifier: string;
  readonly rules: SourceRules;
}

function importViolations({ file, module, isTest, specifier, rules }: ImportContext): readonly string[] {
  if (!specifier.startsWith('.')) {
    if (isTest) return [];
    const found = Object.entries(rules.packagesOnlyIn)
      .filter(([name, modules]) => isPackage(specifier, name) && !modules.includes(module))
      .map(([, modules]) => `imports ${specifier}, which only ${modules.join(' and ')} may`);
    if (specifier.startsWith('node:') && rules.browserModules.includes(module)) {
      found.push(`imports ${specifier}, but ${module} must work in a browser`);
    }
    return found;
  }
  const target = posix.join(posix.dirname(file.path), specifier);
  const targetModule = moduleOf(target);
  if (targetModule === undefined) {
    return isTest || target.startsWith('src/') ? [] : [`imports ${target}, which is not part of the built package`];
  }
  if (targetModule === module) return [];
  const found: string[] = [];
  if (!rules.imports[module]?.includes(targetModule))
    found.push(`${module} may not import ${targetModule} (${target})`);
  if (!isTest && target !== `src/${targetModule}/index.ts`) {
    found.push(`imports ${target}; another module is entered through src/${targetModule}/index.ts`);
  }
  return found;
}

function isPackage(specifier: string, name: string): boolean {
  return specifier === name || specifier.startsWith(`${name}/`);
}

interface AbsenceContext {
  readonly node: Node;
  readonly module: string;
  readonly rules: SourceRules;
}

function absenceViolations({ node, module, rules }: AbsenceContext): readonly string[] {
  const found: string[] = [];
  const text = textIn(node);
  for (const [wanted, modules] of Object.entries(rules.textOnlyIn)) {
    if (text?.includes(wanted) && !modules.includes(module)) {
      found.push(`mentions ${wanted}, which only ${modules.join(' and ')} may`);
    }
  }
  for (const member of processMembersIn(node)) {
    const modules = rules.processOnlyIn[member];
    if (modules !== undefined && !modules.includes(module)) {
      found.push(`uses process.${member}, which only ${modules.join(' and ')} may`);
    }
  }
  const object = node.type === 'MemberExpression' ? nameOf(node['object']) : undefined;
  if ((object === 'process' || object === 'Buffer') && rules.browserModules.includes(module)) {
    found.push(`uses ${object}, but ${module} must work in a browser`);
  }
  return found;
}

/** The module name an import, re-export, dynamic import or type import names; `undefined` for any other node. */
function importedBy(node: Node): string | undefined {
  switch (node.type) {
    case 'ImportDeclaration':
    case 'ExportNamedDeclaration':
    case 'ExportAllDeclaration':
    case 'ImportExpression':
    case 'TSImportType':
      return stringOf(node['source']);
    case 'TSExternalModuleReference':
      return stringOf(node['expression']);
    default:
      return undefined;
  }
}

/** `process.env`, `process['env']`, `const { env } = process` and `import { env } from 'node:process'`. */
function processMembersIn(node: Node): readonly string[] {
  if (node.type === 'MemberExpression' && nameOf(node['object']) === 'process') {
    const name = node['computed'] === true ? stringOf(node['property']) : nameOf(node['property']);
    return name === undefined ? [] : [name];
  }
  if (node.type === 'VariableDeclarator' && nameOf(node['init']) === 'process') {
    return childNodes((node['id'] as Node)['properties']).flatMap((property) => nameOf(property['key']) ?? []);
  }
  if (node.type === 'ImportDeclaration' && stringOf(node['source']) === 'node:process') {
    return childNodes(node['specifiers']).flatMap((specifier) => nameOf(specifier['imported']) ?? []);
  }
  return [];
}

function textIn(node: Node): string | undefined {
  if (node.type === 'TemplateElement') return (node['value'] as { readonly raw: string }).raw;
  return stringOf(node);
}

function stringOf(value: unknown): string | undefined {
  const node = value as Node | null | undefined;
  return node?.type === 'Literal' && typeof node['value'] === 'string' ? node['value'] : undefined;
}

function nameOf(value: unknown): string | undefined {
  const node = value as Node | null | undefined;
  return node?.type === 'Identifier' ? (node['name'] as string) : undefined;
}

function* walk(node: Node): Generator<Node> {
  yield node;
  for (const value of Object.values(node)) for (const child of childNodes(value)) yield* walk(child);
}

function childNodes(value: unknown): readonly Node[] {
  const values = Array.isArray(value) ? value : [value];
  return values.filter((item) => typeof item === 'object' && item !== null && typeof item.type === 'string');
}

/** The folder in src/ that a path lies in. */
function moduleOf(path: string): string | undefined {
  const [top, module, file] = path.split('/');
  return top === 'src' && file !== undefined ? module : undefined;
}

function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split('\n').length;
}
