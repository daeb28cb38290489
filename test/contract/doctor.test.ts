import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { runDoctor } from '../../src/isolation/index.ts';
import { initProgram } from '../support/node-harness.ts';
import { findLeftovers, nothingLeft } from '../support/node-leftovers.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.linux, requires.root, requires.cgroups);

test('where sandboxes can be made, every required guard is found to work, and trying leaves nothing', async () => {
  const dataDirectory = await mkdtemp(join(tmpdir(), 'atoll-doctor-'));
  try {
    const findings = await runDoctor({ dataDirectory, initProgram });
    expect(findings.filter(({ ok, required }) => required && !ok)).toEqual([]);
    expect(await findLeftovers(dataDirectory)).toEqual(nothingLeft);
  } finally {
    await rm(dataDirectory, { recursive: true });
  }
});
