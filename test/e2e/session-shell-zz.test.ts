import { afterAll, beforeAll, expect, test } from 'vitest';
import { SessionRig } from '../support/session-rig.ts';
let rig: SessionRig;
beforeAll(async () => { rig = await SessionRig.open(); });
afterAll(async () => { await rig?.close(); });
test('try', async () => {
  const s = await rig.session();
  for (const c of ['set -o history', 'echo remembered', 'history; set +o | grep history', 'set +o history', 'trap "echo int" INT; kill -INT $$; echo on', 'trap - INT; echo here; kill -INT $$; echo after'])
  console.log(c, await s.exec(c));
});
