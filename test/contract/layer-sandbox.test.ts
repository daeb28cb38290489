/** Real sandboxes on layers: one is frozen while it writes, and forks of it begin with that instant. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { LayerStore } from '../../src/layers/index.ts';
import { eventually } from '../support/crashes.ts';
import { LayerRig, rigKinds } from '../support/layer-rig.ts';
import { LayeredSandbox } from '../support/layered-sandbox.ts';
import { describeWith, requires } from '../support/requires.ts';

const tested = rigKinds.filter(({ kind, isOnBtrfs }) => kind === 'pool' || (kind === 'directories' && !isOnBtrfs));
for (const kind of tested) {
  describeWith(...kind.needs, requires.cgroups)(`sandboxes on ${kind.title}`, () => {
    let rig: LayerRig;
    let store: LayerStore;
    const sandboxes: LayeredSandbox[] = [];
    beforeEach(async () => {
      rig = await LayerRig.open(kind);
      store = await rig.store();
    });
    afterEach(async () => {
      for (const sandbox of sandboxes.splice(0)) await sandbox.end();
      await rig.close();
    });

    const start = async (writable: Parameters<typeof LayeredSandbox.start>[2]) => {
      const sandbox = await LayeredSandbox.start(rig, store, writable);
      sandboxes.push(sandbox);
      return sandbox;
    };

    test('K34: a layer frozen under a writer is of one instant, and a fork goes on from it', async () => {
      const writable = await rig.fork(store);
      const source = await start(writable);
      const writer = 'i=0; while :; do i=$((i+1)); echo $i >> /a.log; echo $i >> /b.log; done';
      const writing = source.run(writer).catch(() => 'ended');
      await eventually(async () => expect(Number(await source.run('tail -n 1 /b.log'))).toBeGreaterThan(10));
      const layers = [];
      for (let round = 0; round < 3; round++) {
        layers.push(await source.frozen(() => store.freeze(writable.id, { isInUse: true })));
        const [before] = (await source.run('tail -n 1 /b.log')).split('\n');
        await eventually(async () =>
          expect(Number(await source.run('tail -n 1 /b.log'))).toBeGreaterThan(Number(before)),
        );
      }
      const ends: number[] = [];
      for (const { id } of layers) {
        const fork = await start(await rig.fork(store, id));
        const [a, b] = (await fork.run('tail -n 1 /a.log; tail -n 1 /b.log')).trim().split('\n').map(Number);
        expect(a! - b!).toBeGreaterThanOrEqual(0);
        expect(a! - b!).toBeLessThanOrEqual(1);
        ends.push(a!);
        expect(await fork.run('echo mine > /a.log && cat /a.log')).toBe('mine\n');
      }
      expect(ends).toEqual(ends.toSorted((x, y) => x - y));
      expect(new Set(ends).size).toBe(3);
      expect(await source.run('head -n 1 /a.log')).toBe('1\n');
      await source.end();
      await writing;
    });

    test('what is removed, moved and made in either tree is so in a fork, and set-id programs work', async () => {
      const writable = await rig.fork(store);
      const source = await start(writable);
      const script = [
        'set -e',
        'rm -rf /etc/skel && rm /etc/hostname',
        'mv /etc/pam.d /opt/moved && mv /usr/share/doc /usr/local/doc',
        'echo text > /usr/local/file',
        'cp /usr/bin/id /opt/id && chmod 4755 /opt/id',
        'chmod 711 /',
      ];
      expect(await source.run(script.join('\n'))).toBe('');
      const look =
        'ls -A /etc /opt /usr/local/doc | sort | md5sum; ls -d /etc/skel /usr/share/doc 2>&1; cat /usr/local/file; stat -c %a /';
      const seen = await source.run(look);
      expect(seen).toContain('No such file');
      expect(seen).toContain('text\n711\n');
      const layer = await source.frozen(() => store.freeze(writable.id, { isInUse: true }));
      const fork = await start(await rig.fork(store, layer.id));
      expect(await fork.run(look)).toBe(seen);
      expect(await fork.run('/opt/id -u', 'user')).toBe('0\n');
      expect(await fork.run('id -u', 'user')).toBe('1000\n');
    });
  });
}
