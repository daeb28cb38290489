/**
 * What the environment may set beyond the command line's options.
 *
 *   ATOLL_DATA       the data directory
 *   ATOLL_LAYERS     where templates are kept, where several servers share them
 *   ATOLL_APT        apt's configuration for the packages of templates; default: /etc/apt
 *   ATOLL_RESOLVERS  who answers sandboxes' questions for names: addresses with a comma between; default: /etc/resolv.conf
 *   ATOLL_PRIVATE_HOSTS  hosts of git remotes and registries that may be asked wherever they lead: names with a comma between; default: none
 *   ATOLL_POOL       JSON of the sizes of a pool (docs/storage.md): initialBytes, reserveBytes, stepBytes, limitBytes
 *   ATOLL_SETTINGS   JSON of control's settings: deadlines, bounds, defaults
 *   ATOLL_FAULTS     fault points that crash, fail or wait: for tests of crashes, never in production
 */
import { z } from 'zod';
import { type FaultPoints, noFaults, parseFaults } from '../base/index.ts';
import type { ControlSettings } from '../control/index.ts';
import type { PoolSizes } from '../layers/index.ts';
import { networkPolicy } from '../protocol/index.ts';
import { StartError } from './start-error.ts';

const count = z.int().min(1);
const settingsSchema = z.strictObject({
  defaultLimits: z
    .strictObject({
      memoryBytes: count,
      cpuMillis: count,
      processes: count,
      diskBytes: count.nullable().default(null),
    })
    .optional(),
  defaultNetwork: networkPolicy.optional(),
  sandboxesPerTeam: count.optional(),
  transitionMs: count.optional(),
  youngMs: z.int().min(0).optional(),
  reconcileIntervalMs: count.optional(),
  operationsKeptMs: count.optional(),
  eventsKept: count.optional(),
  historyKept: count.optional(),
  leaseGraceMs: count.optional(),
  retentionIntervalMs: count.optional(),
  planRefsKeptMs: count.optional(),
  planRecoveryIntervalMs: count.optional(),
}) satisfies z.ZodType<{ [Key in keyof ControlSettings]?: ControlSettings[Key] | undefined }>;

const poolSizes = z.strictObject({ initialBytes: count, reserveBytes: count, stepBytes: count, limitBytes: count });

export function faultsFromEnvironment(): FaultPoints {
  const script = process.env['ATOLL_FAULTS'];
  if (!script) return noFaults;
  try {
    return parseFaults(script);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new StartError('settings_invalid', `ATOLL_FAULTS is not valid: ${why}`, { cause });
  }
}

export function layersFromEnvironment(): string | undefined {
  return process.env['ATOLL_LAYERS'] || undefined;
}

export function aptFromEnvironment(): string | undefined {
  return process.env['ATOLL_APT'] || undefined;
}

export function resolversFromEnvironment(): readonly string[] | undefined {
  const text = process.env['ATOLL_RESOLVERS'];
  return text ? text.split(',').map((server) => server.trim()) : undefined;
}

export function privateHostsFromEnvironment(): readonly string[] {
  const hosts = (process.env['ATOLL_PRIVATE_HOSTS'] ?? '').split(',').map((host) => host.trim());
  return hosts.filter((host) => host !== '');
}

export function poolSizesFromEnvironment(): PoolSizes | undefined {
  return parsedFromEnvironment('ATOLL_POOL', poolSizes);
}

export function settingsFromEnvironment(): Partial<ControlSettings> {
  const settings = parsedFromEnvironment('ATOLL_SETTINGS', settingsSchema) ?? {};
  return JSON.parse(JSON.stringify(settings)) as Partial<ControlSettings>;
}

function parsedFromEnvironment<Shape extends z.ZodType>(name: string, schema: Shape): z.infer<Shape> | undefined {
  const text = process.env[name];
  if (!text) return undefined;
  try {
    return schema.parse(JSON.parse(text));
  } catch (cause) {
    const why = cause instanceof z.ZodError ? z.prettifyError(cause).replaceAll(/\s*\n\s*/g, ' ') : String(cause);
    throw new StartError('settings_invalid', `${name} is not valid: ${why}`, { cause });
  }
}
