/**
 * Writes the pages of docs/ that are made from the code: `npm run docs`. `test/generated-docs.test.ts` fails while one of
 * them is not what this writes.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type OpenApiDocument, renderApiPage } from './docs/api-page.ts';
import { renderCliPage } from './docs/cli-page.ts';
import { renderErrorsPage } from './docs/errors-page.ts';

export const docsDirectory = join(dirname(import.meta.dirname), 'docs');

/** Each generated page by its name in docs/. The code a page is made from is loaded only for it. */
export const generatedPages: Readonly<Record<string, () => Promise<string>>> = {
  'errors.md': async () => renderErrorsPage((await import('../src/protocol/index.ts')).errorCatalog),
  'openapi.json': async () => `${JSON.stringify(await loadOpenApi(), undefined, 2)}\n`,
  'api.md': async () => renderApiPage(await loadOpenApi()),
  'cli.md': async () => renderCliPage((await import('../src/cli/program.ts')).buildProgram()),
};

async function loadOpenApi(): Promise<OpenApiDocument> {
  const { openApiDocument } = await import('../src/server/index.ts');
  return openApiDocument() as unknown as OpenApiDocument;
}

if (import.meta.main) {
  mkdirSync(docsDirectory, { recursive: true });
  for (const [name, render] of Object.entries(generatedPages)) {
    writeFileSync(join(docsDirectory, name), await render());
    process.stdout.write(`docs/${name}\n`);
  }
}
