/** E2B's paths, each with what answers it and the scope that a key needs. What E2B has and we have not is here too, and says so. */
import type { Scope } from '../../protocol/index.ts';
import { RouteTable } from '../route-table.ts';
import { notSupported } from './e2b-error.ts';
import type { LifecycleCalls } from './lifecycle-calls.ts';
import type { MetricCalls } from './metric-calls.ts';
import type { Asked, SandboxCalls, Told } from './sandbox-calls.ts';
import type { TemplateCalls } from './template-calls.ts';

export interface ApiRoute {
  readonly method: string;
  readonly path: string;
  readonly scope: Scope;
  readonly answer: (asked: Asked) => Promise<Told>;
}

/** Paths that begin with one of these are E2B's. */
const ownedPaths =
  /^\/(v2|v3|sandboxes|templates|snapshots|volumes|volumecontent|secrets|teams|nodes|api-keys|access-tokens|health)(\/|$)/;

export function isE2bPath(path: string): boolean {
  return ownedPaths.test(path);
}

export interface ApiCalls {
  readonly sandboxes: SandboxCalls;
  readonly lifecycle: LifecycleCalls;
  readonly metrics: MetricCalls;
  readonly templates: TemplateCalls;
}

export function apiRoutes({ sandboxes, lifecycle, metrics, templates }: ApiCalls): RouteTable<ApiRoute> {
  const table = new RouteTable<ApiRoute>();
  const add = (scope: Scope, method: string, path: string, answer: ApiRoute['answer']) =>
    table.add({ method, path }, { method, path, scope, answer });
  const read = (method: string, path: string, answer: ApiRoute['answer']) =>
    add('sandboxes:read', method, path, answer);
  const write = (method: string, path: string, answer: ApiRoute['answer']) =>
    add('sandboxes:write', method, path, answer);
  const missing = (what: string, paths: readonly string[]) => {
    for (const path of paths) {
      for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) {
        read(method, path, async () => {
          throw notSupported(what);
        });
      }
    }
  };

  write('POST', '/sandboxes', (asked) => sandboxes.create(asked, { timeoutS: 15 }));
  write('POST', '/v2/sandboxes', (asked) => sandboxes.create(asked, { timeoutS: 300 }));
  read('GET', '/sandboxes', (asked) => sandboxes.listRunning(asked));
  read('GET', '/v2/sandboxes', (asked) => sandboxes.list(asked));
  read('GET', '/sandboxes/:sandboxID', (asked) => sandboxes.info(asked));
  write('DELETE', '/sandboxes/:sandboxID', (asked) => sandboxes.kill(asked));
  for (const generation of ['', '/v2']) {
    write('POST', `${generation}/sandboxes/:sandboxID/connect`, (asked) => lifecycle.connect(asked));
  }
  write('POST', '/sandboxes/:sandboxID/pause', (asked) => lifecycle.pause(asked));
  write('POST', '/sandboxes/:sandboxID/resume', (asked) => lifecycle.resume(asked));
  write('POST', '/sandboxes/:sandboxID/fork', (asked) => lifecycle.fork(asked));
  write('POST', '/sandboxes/:sandboxID/snapshots', (asked) => lifecycle.snapshot(asked));
  read('GET', '/snapshots', (asked) => lifecycle.listSnapshots(asked));
  write('POST', '/sandboxes/:sandboxID/timeout', (asked) => sandboxes.setTimeout(asked));
  write('POST', '/sandboxes/:sandboxID/refreshes', (asked) => sandboxes.refresh(asked));
  write('PUT', '/sandboxes/:sandboxID/network', (asked) => sandboxes.setNetwork(asked));
  write('PATCH', '/sandboxes/:sandboxID/metadata', (asked) => sandboxes.patchMetadata(asked));
  read('GET', '/sandboxes/:sandboxID/metrics', (asked) => metrics.series(asked));
  read('GET', '/sandboxes/metrics', (asked) => metrics.latest(asked));
  read('GET', '/sandboxes/:sandboxID/logs', (asked) => sandboxes.logs(asked, 'v1'));
  read('GET', '/v2/sandboxes/:sandboxID/logs', (asked) => sandboxes.logs(asked, 'v2'));

  read('GET', '/templates', (asked) => templates.list(asked));
  read('GET', '/v2/templates', (asked) => templates.list(asked));
  read('GET', '/templates/aliases/:alias', (asked) => templates.alias(asked));
  write('DELETE', '/templates/:templateID', (asked) => templates.delete(asked));
  read('GET', '/templates/:templateID/tags', (asked) => templates.tags(asked));

  missing('Volumes are', [
    '/volumes',
    '/volumes/:volumeID',
    '/volumecontent/:volumeID/path',
    '/volumecontent/:volumeID/dir',
    '/volumecontent/:volumeID/file',
  ]);
  missing('Secrets are', ['/secrets', '/secrets/:secret']);
  missing('Building and tagging templates through this API (`atoll template build` does it) is', [
    '/v3/templates',
    '/v2/templates/:templateID/builds/:buildID',
    '/templates/:templateID/files/:hash',
    '/templates/:templateID/builds/:buildID/status',
    '/templates/tags',
  ]);
  return table;
}
