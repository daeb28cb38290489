/** A patch of metadata over HTTP against the least that keeping it can cost: one synced commit of the same size. */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { againstPeer, figure } from '../finding.ts';
import { interleave, timed } from '../interleave.ts';
import type { Row, Scope } from '../row.ts';
import { openHttp, startPlatform } from '../start.ts';

const rounds = 300;

export const metadataRow: Row = {
  name: 'metadata',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    const http = openHttp(scope, platform);
    const sandbox = await platform.client.sandboxes.create();
    const commit = openCommit(scope, platform.dataDirectory);
    const path = `/v1/sandboxes/${sandbox.id}/metadata`;
    const variants = {
      ours: (round: number) => {
        const body = patchOf(round);
        return timed(() => http.send('PATCH', path, body));
      },
      commit: async (round: number) => commit(patchOf(round)),
      get: () => timed(() => http.send('GET', path)),
    };
    const samples = await interleave(variants, { rounds, warmups: 20 });
    const ours = figure('metadata patch over HTTP', samples.ours);
    return [
      againstPeer(ours, figure('one synced SQLite commit', samples.commit), { atMost: 4 }),
      againstPeer(ours, figure('GET of the metadata', samples.get)),
    ];
  },
};

function patchOf(round: number): string {
  return JSON.stringify({
    owner: `agent-${round}`,
    step: 'compile the project and run its tests',
    attempt: `${round}`,
  });
}

/** In the server's directory and with the store's settings; one row replaced per commit. */
function openCommit(scope: Scope, directory: string): (text: string) => number {
  const database = new DatabaseSync(join(directory, 'commit-peer.db'));
  scope.stack.defer(() => database.close());
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL');
  database.exec(
    "CREATE TABLE sandbox (id INTEGER PRIMARY KEY, metadata TEXT NOT NULL); INSERT INTO sandbox VALUES (1, '')",
  );
  const update = database.prepare('UPDATE sandbox SET metadata = ? WHERE id = 1');
  return (text) => {
    const startedAt = performance.now();
    update.run(text);
    return performance.now() - startedAt;
  };
}
