/**
 * The definition file of a template: YAML, read as hostile input. Every refusal names the line and column that it is about.
 *
 *   from: debian            # or base, or any template of the team, or docker://REFERENCE
 *   packages: [git, curl]   # with `from: debian` only
 *   steps:
 *     - env: { A: b }
 *     - workdir: /app
 *     - copy: { from: src, to: /app, owner: user }
 *     - run: make install
 *     - user: user
 *   start: { command: ./serve, ready: { port: 8080 } }
 */
import { isNode, LineCounter, parseDocument } from 'yaml';
import { z } from 'zod';
import { PlatformError, type TemplateDefaults } from '../../protocol/index.ts';
import { packageName } from './apt-packages.ts';
import type { BuildPlan, PlanOrigin, PlanStep } from './build-plan.ts';
import { templateName } from './manifest.ts';

export const definitionLimits = {
  bytes: 256 * 1024,
  steps: 100,
  packages: 500,
  aliases: 16,
  /** Below what a create may take. */
  readyMs: 40_000,
  readyMsDefault: 20_000,
} as const;

const registryWord = 'docker://';

const noNul = (text: string) => !text.includes('\0');
const line = z.string().min(1).max(4_095).refine(noNul, 'It has a NUL byte.');
const command = z.union([
  z.string().min(1).max(100_000).refine(noNul, 'It has a NUL byte.'),
  z.array(z.string().max(100_000).refine(noNul, 'It has a NUL byte.')).min(1).max(1_000),
]);
const absolute = line.startsWith('/', 'It begins with "/".');
/** Numbers and booleans are as they are written: YAML makes no text of `8080`. */
const value = z.union([z.string(), z.number(), z.boolean()]).transform(String).refine(noNul, 'It has a NUL byte.');
const env = z.record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'It is no name of a variable.'), value);
const user = z.union([line, z.int().nonnegative()]).transform(String);
/** Stays within the context by its words; links in the context lead nowhere else, because it is unpacked inside a sandbox. */
const contextPath = line.refine(
  (path) => !path.startsWith('/') && !path.split('/').includes('..'),
  'It is relative to the definition, and does not leave its directory.',
);

const step = z.union(
  [
    z.strictObject({ run: z.union([command, z.strictObject({ command, user: user.optional() })]) }),
    z.strictObject({ copy: z.strictObject({ from: contextPath, to: absolute, owner: user.optional() }) }),
    z.strictObject({ env }),
    z.strictObject({ workdir: line }),
    z.strictObject({ user }),
  ],
  'A step has one of: run, copy, env, workdir, user.',
);
type Step = z.output<typeof step>;

const definition = z.strictObject({
  from: z
    .string()
    .max(1_000)
    .refine(
      (name) => name.startsWith(registryWord) || templateName.safeParse(name).success,
      'It is "debian", docker://REFERENCE or the name of a template.',
    ),
  packages: z
    .array(z.string().regex(packageName, 'It is no name of a Debian package.'))
    .max(definitionLimits.packages)
    .optional(),
  env: env.optional(),
  workdir: absolute.optional(),
  user: user.optional(),
  steps: z.array(step).max(definitionLimits.steps).default([]),
  start: z
    .strictObject({
      command,
      ready: z
        .strictObject({
          port: z.int().min(1).max(65_535).optional(),
          command: command.optional(),
          timeoutMs: z.int().min(1).max(definitionLimits.readyMs).default(definitionLimits.readyMsDefault),
        })
        .optional(),
    })
    .optional(),
});
type Definition = z.output<typeof definition>;

/** Refuses with `invalid_definition`. */
export function parseDefinition(text: string): BuildPlan {
  if (Buffer.byteLength(text) > definitionLimits.bytes)
    throw refusal('The definition is too long.', { line: 1, column: 1 });
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, stringKeys: true });
  const place = (offset: number) => {
    const { line, col } = lines.linePos(offset);
    return { line, column: col };
  };
  const [first] = document.errors;
  if (first !== undefined) throw refusal(first.message, place(first.pos[0]));
  let data: unknown;
  try {
    data = document.toJS({ maxAliasCount: definitionLimits.aliases });
  } catch (error) {
    throw refusal((error as Error).message, { line: 1, column: 1 });
  }
  const parsed = definition.safeParse(data);
  if (!parsed.success) {
    const issue = deepest(parsed.error.issues[0]!, (path) => document.hasIn(path));
    const where = issue.path.length === 0 ? '' : `${issue.path.join('.')}: `;
    throw refusal(
      `${where}${issue.message}`,
      place(offsetOf(document, [...issue.path, ...(issue.keys?.slice(0, 1) ?? [])])),
    );
  }
  if (parsed.data.packages !== undefined && parsed.data.from !== 'debian') {
    const message = 'packages: only a template from "debian" takes packages; in others, install them in a step.';
    throw refusal(message, place(offsetOf(document, ['packages'])));
  }
  return planOf(parsed.data);
}

interface Issue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  /** That are unknown. */
  readonly keys?: readonly string[];
}

/** Of a choice of forms, what is wrong deepest within what was written says more than "none fits". */
function deepest(issue: z.core.$ZodIssue, isWritten: (path: readonly PropertyKey[]) => boolean): Issue {
  const own = issue.path.length;
  const about = leavesOf(issue).filter(
    ({ path }) => path.length > own && (isWritten(path) || (path.length > own + 1 && isWritten(path.slice(0, -1)))),
  );
  return about.reduce<Issue>((best, one) => (one.path.length > best.path.length ? one : best), issue);
}

function leavesOf(issue: z.core.$ZodIssue): Issue[] {
  if (issue.code !== 'invalid_union') return [issue];
  const inner = issue.errors.flat().map((one) => ({ ...one, path: [...issue.path, ...one.path] }) as z.core.$ZodIssue);
  return [issue, ...inner.flatMap(leavesOf)];
}

function offsetOf(document: ReturnType<typeof parseDocument>, path: readonly PropertyKey[]): number {
  for (let length = path.length; length >= 0; length--) {
    const node = document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return node.range[0];
  }
  return 0;
}

function refusal(message: string, place: { readonly line: number; readonly column: number }): PlatformError {
  return new PlatformError('invalid_definition', `line ${place.line}, column ${place.column}: ${message}`, {
    details: place,
  });
}

function planOf(given: Definition): BuildPlan {
  const origin = originOf(given);
  return { origin, stepCount: given.steps.filter(hasLayer).length, steps: (inherited) => stepsOf(given, inherited) };
}

function originOf({ from, packages = [] }: Definition): PlanOrigin {
  if (from === 'debian') return { kind: 'debian', packages };
  if (from.startsWith(registryWord)) return { kind: 'image', reference: from.slice(registryWord.length) };
  return { kind: 'template', name: from };
}

function hasLayer(given: Step): boolean {
  return 'run' in given || 'copy' in given;
}

function stepsOf(given: Definition, inherited: TemplateDefaults): { steps: PlanStep[]; defaults: TemplateDefaults } {
  let at = {
    env: { ...inherited.env, ...given.env },
    workdir: given.workdir ?? inherited.workdir,
    user: given.user ?? inherited.user,
  };
  const steps: PlanStep[] = [];
  for (const one of given.steps) {
    if ('env' in one) at = { ...at, env: { ...at.env, ...one.env } };
    else if ('workdir' in one) at = { ...at, workdir: joined(at.workdir, one.workdir) };
    else if ('user' in one) at = { ...at, user: one.user };
    else if ('copy' in one) steps.push({ kind: 'copy', ...one.copy, owner: one.copy.owner ?? null });
    else steps.push({ kind: 'run', ...runOf(one.run, at.user), env: at.env, workdir: at.workdir, hasNetwork: true });
  }
  return { steps, defaults: { ...at, start: startOf(given) ?? inherited.start } };
}

function runOf(run: Extract<Step, { run: unknown }>['run'], user: string) {
  if (typeof run === 'string' || Array.isArray(run)) return { command: run, user };
  return { command: run.command, user: run.user ?? user };
}

function startOf({ start }: Definition): TemplateDefaults['start'] | undefined {
  if (start === undefined) return undefined;
  const { port = null, command = null, timeoutMs = definitionLimits.readyMsDefault } = start.ready ?? {};
  return { command: start.command, ready: { port, command, timeoutMs } };
}

function joined(base: string, path: string): string {
  return path.startsWith('/') ? path : `${base === '/' ? '' : base}/${path}`;
}
