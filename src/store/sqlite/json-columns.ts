/** JSON in columns: read back frozen, and looked at just enough that what is returned has the shape its type says. */
import type { NetworkPolicy, SandboxSpec, SandboxState } from '../../protocol/index.ts';
import { networkPolicy, stateKinds } from '../../protocol/index.ts';

type Fields = Readonly<Record<string, unknown>>;

export function parseFields(text: string): Fields {
  const value = parseFrozen(text);
  if (!isFields(value)) throw new TypeError('Not a JSON object.');
  return value;
}

export function parseTexts(text: string): readonly string[] {
  const value = parseFrozen(text);
  if (!Array.isArray(value) || !value.every(isText)) throw new TypeError('Not a JSON array of texts.');
  return value;
}

export function parseItems(text: string): readonly Fields[] {
  const value = parseFrozen(text);
  if (!Array.isArray(value) || !value.every(isFields)) throw new TypeError('Not a JSON array of objects.');
  return value;
}

export function parseTextMap(text: string): Readonly<Record<string, string>> {
  const value: unknown = JSON.parse(text);
  if (!isFields(value) || !isTextMap(value)) throw new TypeError('Not a JSON object of texts.');
  return Object.freeze(value); // It holds texts only: there is nothing deeper to freeze.
}

export function parseSpec(text: string): SandboxSpec {
  const value = parseFields(text);
  const whole = isText(value['template']) && isFields(value['limits']) && isFields(value['env']);
  if (!whole || !isTextMap(value['env'] as Fields)) throw new TypeError('Not the spec of a sandbox.');
  return value as unknown as SandboxSpec;
}

export function parseState(text: string): SandboxState {
  const value = parseFields(text);
  if (!stateKinds.some((kind) => kind === value['kind'])) throw new TypeError('Not the state of a sandbox.');
  return value as SandboxState;
}

export function parseNetwork(text: string): NetworkPolicy {
  return freeze(networkPolicy.parse(JSON.parse(text))) as NetworkPolicy;
}

function parseFrozen(text: string): unknown {
  return freeze(JSON.parse(text));
}

function freeze(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  for (const name in value) freeze((value as Record<string, unknown>)[name]);
  return Object.freeze(value);
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

function isTextMap(value: Fields): value is Readonly<Record<string, string>> {
  for (const name in value) if (typeof value[name] !== 'string') return false;
  return true;
}
