import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { requires, testWith } from '../../test/support/requires.ts';
import { runDoctor } from './doctor.ts';

testWith(requires.linux)('what does not work says why and what to do, and the rest is still tried', async () => {
  const dataDirectory = await mkdtemp(join(tmpdir(), 'atoll-doctor-'));
  try {
    const findings = await runDoctor({ dataDirectory, initProgram: join(dataDirectory, 'missing') });
    const init = findings.find(({ name }) => name === 'init');
    expect(init).toMatchObject({ ok: false, required: true, fix: expect.stringContaining('native/build.sh') });
    expect(init?.message).toContain('ENOENT');
    expect(findings.map(({ name }) => name)).toEqual(expect.arrayContaining(['cgroups', 'overlay', 'inotify']));
    for (const finding of findings) expect(finding.ok).toBe(finding.fix === '');
  } finally {
    await rm(dataDirectory, { recursive: true });
  }
});
