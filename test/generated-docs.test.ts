import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { docsDirectory, generatedPages } from '../scripts/generate-docs.ts';

test.each(Object.entries(generatedPages))(
  'docs/%s says what the code says (else: npm run docs)',
  async (name, render) => {
    const path = join(docsDirectory, name);
    const written = existsSync(path) ? readFileSync(path, 'utf8') : 'absent';
    expect(written).toBe(await render());
  },
);
