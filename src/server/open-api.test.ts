import { expect, test } from 'vitest';
import { openHttpRig } from '../../test/support/http-rig.ts';
import { errorCatalog, routes } from '../protocol/index.ts';
import { openApiDocument } from './open-api.ts';

const document = openApiDocument({ version: '1.2.3' });
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
);

test('every route is in the document once, under its name', () => {
  const names = operations.map(({ operation }) => operation['operationId']);
  expect(names.toSorted()).toEqual(Object.keys(routes).toSorted());
});

test('every parameter of a path is declared, required, and stands in the path', () => {
  for (const { path, operation } of operations) {
    const parameters = operation['parameters'] as { name: string; in: string; required?: boolean; schema: object }[];
    const inPath = parameters.filter((parameter) => parameter.in === 'path');
    expect(inPath.map((parameter) => `{${parameter.name}}`)).toEqual(path.match(/\{\w+\}/g) ?? []);
    expect(inPath.every((parameter) => parameter.required)).toBe(true);
    for (const parameter of parameters) expect(Object.keys(parameter.schema).length).toBeGreaterThan(0);
  }
});

test('every reference points at something, and every operation has a success and describes its errors', () => {
  for (const [, pointer] of JSON.stringify(document).matchAll(/"\$ref":"#\/([^"]+)"/g)) {
    const target = pointer!.split('/').reduce<unknown>((at, key) => (at as Record<string, unknown>)?.[key], document);
    expect(target, pointer).toBeDefined();
  }
  for (const { operation } of operations) {
    const statuses = Object.keys(operation['responses'] as object);
    expect(statuses.some((status) => status.startsWith('2'))).toBe(true);
    expect(statuses).toEqual(expect.arrayContaining(['400', '401', '403', '500']));
  }
  const error = JSON.stringify(document.components.schemas['Error']);
  for (const code of Object.keys(errorCatalog)) expect(error).toContain(`"${code}"`);
});

test('ids keep their pattern, and what has a default may be left out', () => {
  const create = document.paths['/v1/sandboxes']!['post']!;
  const body = create['requestBody'] as {
    required: boolean;
    content: Record<string, { schema: { required?: string[] } }>;
  };
  expect(body.required).toBe(false);
  expect(body.content['application/json']!.schema.required).toBeUndefined();
  expect(JSON.stringify(document.components.schemas['Sandbox'])).toContain('^sbx[a-z0-9]{20}$');
});

test('the server serves it to everybody', async () => {
  await using rig = await openHttpRig();
  const response = await fetch(`${rig.url}/openapi.json`);
  expect(await response.json()).toMatchObject({ openapi: '3.1.0', info: { version: '0.0.0-test' } });
});
