/**
 * The machine's switches for forwarding, one an interface. The machine's global switches are never touched: turning on the one of IPv6
 * stops a machine from taking its address from its router.
 *
 * Which switches were turned on is remembered in /run, which lasts as long as the switches do, for all nodes of one network namespace
 * together: the last one turns them off again.
 */
import { mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { dirname } from 'node:path';
import { z } from 'zod';
import { writeFileDurably } from '../../base/index.ts';
import { uplinkPrefix } from './plan.ts';

const rememberedSchema = z.strictObject({ interfaces4: z.array(z.string()), interfaces6: z.array(z.string()) });
type Remembered = z.infer<typeof rememberedSchema>;

/** Whether the machine can route IPv6 between chosen interfaces, or does so anyway. */
export async function canForward6(): Promise<boolean> {
  if ((await read('/proc/sys/net/ipv6/conf/all/disable_ipv6')) !== '0') return false;
  return (await isForwarding6()) || (await read('/proc/sys/net/ipv6/conf/all/force_forwarding')) !== undefined;
}

/** The interfaces that forward because of us, this node or another one. */
export async function findOpened(): Promise<string[]> {
  const { interfaces4, interfaces6 } = await recall();
  return [...new Set([...interfaces4, ...interfaces6])];
}

/** Which interfaces would have to be opened, so that a guard can stand before they are. */
export async function findClosed(): Promise<Remembered> {
  const interfaces4: string[] = [];
  const interfaces6: string[] = [];
  for (const name of await defaultInterfaces4()) if ((await read(switch4(name))) === '0') interfaces4.push(name);
  if (!(await isForwarding6())) {
    for (const name of await defaultInterfaces6()) if ((await read(switch6(name))) === '0') interfaces6.push(name);
  }
  return { interfaces4, interfaces6 };
}

/** Turns on forwarding from and to the router. What is turned on is remembered first. */
export async function openForwarding(uplink: string, closed: Remembered): Promise<void> {
  const known = await recall();
  const merge = (a: readonly string[], b: readonly string[]) => [...new Set([...a, ...b])];
  await remember({
    interfaces4: merge(known.interfaces4, closed.interfaces4),
    interfaces6: merge(known.interfaces6, closed.interfaces6),
  });
  for (const name of [uplink, ...closed.interfaces4]) await writeFile(switch4(name), '1');
  if (await isForwarding6()) return;
  for (const name of [uplink, ...closed.interfaces6]) {
    if ((await read(switch6(name))) !== undefined) await writeFile(switch6(name), '1');
  }
}

/** Turns off what was turned on, unless another node still needs it. */
export async function closeForwarding(): Promise<void> {
  if (Object.keys(networkInterfaces()).some((name) => name.startsWith(uplinkPrefix))) return;
  const { interfaces4, interfaces6 } = await recall();
  // Whoever has turned on the global switch since wants them on.
  const isRouter4 = (await read('/proc/sys/net/ipv4/ip_forward')) === '1';
  if (!isRouter4) for (const name of interfaces4) await turnOff(switch4(name));
  for (const name of interfaces6) await turnOff(switch6(name));
  await rm(await memory(), { force: true });
}

async function turnOff(path: string): Promise<void> {
  if ((await read(path)) === '1') await writeFile(path, '0'); // The interface may be gone.
}

async function isForwarding6(): Promise<boolean> {
  return (await read('/proc/sys/net/ipv6/conf/all/forwarding')) === '1';
}

function switch4(name: string): string {
  return `/proc/sys/net/ipv4/conf/${name}/forwarding`;
}

function switch6(name: string): string {
  return `/proc/sys/net/ipv6/conf/${name}/force_forwarding`;
}

async function defaultInterfaces4(): Promise<string[]> {
  const lines = ((await read('/proc/net/route')) ?? '').split('\n').slice(1);
  const fields = lines.map((line) => line.split('\t'));
  return unique(
    fields
      .filter(([, target, , , , , , mask]) => /^0+$/.test(target ?? '') && /^0+$/.test(mask ?? ''))
      .map(([name]) => name),
  );
}

/** `target length source length next metric references uses flags interface`; a flag of 0x200 refuses. */
async function defaultInterfaces6(): Promise<string[]> {
  const fields = ((await read('/proc/net/ipv6_route')) ?? '').split('\n').map((line) => line.trim().split(/\s+/));
  const found = fields.filter(
    ([target, length, , , , , , , flags]) =>
      /^0{32}$/.test(target ?? '') && length === '00' && (Number.parseInt(flags ?? '200', 16) & 0x200) === 0,
  );
  return unique(found.map((line) => line[9]));
}

function unique(names: readonly (string | undefined)[]): string[] {
  return [
    ...new Set(names.filter((name) => name !== undefined && name !== 'lo' && !name.startsWith(uplinkPrefix))),
  ] as string[];
}

async function recall(): Promise<Remembered> {
  const text = await read(await memory());
  const parsed = text === undefined ? undefined : rememberedSchema.safeParse(JSON.parse(text));
  return parsed?.success ? parsed.data : { interfaces4: [], interfaces6: [] };
}

async function remember(opened: Remembered): Promise<void> {
  const path = await memory();
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  await writeFileDurably(path, `${JSON.stringify(opened)}\n`);
}

/** Of the network namespace that this process is in. */
async function memory(): Promise<string> {
  return `/run/atoll/forwarding-${(await stat('/proc/self/ns/net')).ino}.json`;
}

function read(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').then(
    (text) => text.trimEnd(),
    () => undefined,
  );
}
