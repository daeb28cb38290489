/**
 * Finds what a path means by walking it segment by segment. A literal segment goes before a parameter.
 *
 * Paths are declared in `protocol/routes`; a parameter takes exactly one segment, which is not empty.
 */
import { assert } from '../base/index.ts';

interface Branch<Value> {
  readonly literals: Map<string, Branch<Value>>;
  parameter: { readonly name: string; readonly branch: Branch<Value> } | undefined;
  readonly methods: Map<string, Value>;
}

export interface Match<Value> {
  /** By method, in the order they were added. */
  readonly methods: ReadonlyMap<string, Value>;
  /** As they stand in the path, not decoded. */
  readonly params: Readonly<Record<string, string>>;
}

const nearbyMax = 3;

export class RouteTable<Value> {
  readonly #root: Branch<Value> = newBranch();
  readonly #declared: { readonly method: string; readonly path: string }[] = [];

  add(route: { readonly method: string; readonly path: string }, value: Value): void {
    let branch = this.#root;
    for (const segment of segmentsOf(route.path)) {
      branch = segment.startsWith(':') ? parameterBranch(branch, segment.slice(1)) : literalBranch(branch, segment);
    }
    assert(!branch.methods.has(route.method), `${route.method} ${route.path} is bound twice.`);
    branch.methods.set(route.method, value);
    this.#declared.push({ method: route.method, path: route.path });
  }

  find(path: string): Match<Value> | undefined {
    const params: Record<string, string> = {};
    let branch: Branch<Value> | undefined = this.#root;
    for (const segment of segmentsOf(path)) {
      const literal: Branch<Value> | undefined = branch.literals.get(segment);
      if (literal === undefined && branch.parameter !== undefined && segment !== '') {
        params[branch.parameter.name] = segment;
        branch = branch.parameter.branch;
      } else {
        branch = literal;
      }
      if (branch === undefined) return undefined;
    }
    return branch.methods.size === 0 ? undefined : { methods: branch.methods, params };
  }

  /** What exists that looks most like this, for a caller who mistyped it. */
  nearby(wanted: { readonly method: string; readonly path: string }): readonly string[] {
    const segments = segmentsOf(wanted.path).slice(0, 10);
    return this.#declared
      .map((route) => {
        const distance = segmentDistance(segments, segmentsOf(route.path)) + (route.method === wanted.method ? 0 : 0.5);
        return { text: `${route.method} ${route.path}`, distance };
      })
      .sort((a, b) => a.distance - b.distance || (a.text < b.text ? -1 : 1))
      .slice(0, nearbyMax)
      .map((route) => route.text);
  }
}

function newBranch<Value>(): Branch<Value> {
  return { literals: new Map(), parameter: undefined, methods: new Map() };
}

function literalBranch<Value>(branch: Branch<Value>, segment: string): Branch<Value> {
  const next = branch.literals.get(segment) ?? newBranch<Value>();
  branch.literals.set(segment, next);
  return next;
}

function parameterBranch<Value>(branch: Branch<Value>, name: string): Branch<Value> {
  branch.parameter ??= { name, branch: newBranch<Value>() };
  assert(branch.parameter.name === name, `A parameter is called ":${name}" and ":${branch.parameter.name}".`);
  return branch.parameter.branch;
}

function segmentsOf(path: string): string[] {
  return path.split('/').slice(1);
}

/** How much would have to change, in letters; a parameter takes any segment, a missing segment counts as eight letters. */
function segmentDistance(wanted: readonly string[], declared: readonly string[]): number {
  let distance = 8 * Math.abs(wanted.length - declared.length);
  for (let i = 0; i < Math.min(wanted.length, declared.length); i++) {
    if (!declared[i]!.startsWith(':')) distance += Math.min(editDistance(wanted[i]!, declared[i]!), 12);
  }
  return distance;
}

function editDistance(a: string, b: string): number {
  const from = a.slice(0, 40);
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = row[j - 1]! + (from[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(swap, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}
