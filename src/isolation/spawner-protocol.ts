/** The frames between a node and its spawner, as native/PROTOCOL.md has them. */
import { BodyReader, encodeFrame, type Frame, field, MalformedFrame, textField, u16, u32, u64 } from '../base/index.ts';

export const protocolVersion = 1;

const types = {
  hello: 1,
  helloOk: 2,
  create: 10,
  created: 11,
  failed: 12,
  remove: 13,
  removed: 14,
  probe: 15,
  probed: 16,
  router: 17,
  routerClose: 18,
  attach: 19,
  tool: 20,
  networkDone: 21,
  layer: 30,
  layerDone: 31,
} as const;

/** A guard that can be left out on purpose, for a test's positive control. */
export type OpenGuard = 'seccomp' | 'capabilities' | 'dumpable' | 'masks' | 'cgroup';

/** One sandbox's place in its node's router. */
export interface NetworkLink {
  /** The file that holds the router's namespace. */
  readonly router: string;
  readonly slot: number;
  /** Whose link it is, for whoever looks at it later. */
  readonly alias: string;
  readonly address4: Uint8Array;
  readonly gateway4: Uint8Array;
  /** Absent where the machine routes no IPv6. */
  readonly address6?: Uint8Array;
}

/** Programs that take what they are to do on their standard input. */
export type NetworkTool = 'nft' | 'ip';
const toolNumbers: Readonly<Record<NetworkTool, number>> = { nft: 1, ip: 2 };

export interface CreateRequest {
  readonly id: string;
  readonly directory: string;
  readonly layers: readonly string[];
  readonly usrLayers: readonly string[];
  readonly uidBase: number;
  readonly cgroup: string;
  readonly v1Groups: readonly string[];
  /** Milliseconds of boot time; 0: never. */
  readonly deadlineBootMs: number;
  readonly generation: number;
  readonly noNewPrivileges: boolean;
  readonly fence: number;
  readonly openGuards: readonly OpenGuard[];
  readonly endFile: string;
  /** Absent: a loopback interface and nothing else. */
  readonly network?: NetworkLink;
  /** Where its `upper`, `work`, `usr-upper` and `usr-work` are; absent: in `directory`. */
  readonly writable?: string;
}

export type SpawnerAnswer =
  | { readonly kind: 'hello'; readonly version: number }
  | { readonly kind: 'created'; readonly request: number; readonly pid: number }
  | { readonly kind: 'done'; readonly request: number }
  | { readonly kind: 'layer'; readonly request: number; readonly result: string }
  | {
      readonly kind: 'failed';
      readonly request: number;
      readonly errno: number;
      readonly step: string;
      readonly message: string;
    };

export function helloFrame(): Buffer {
  return encodeFrame(types.hello, u16(protocolVersion));
}

export function createFrame(request: number, order: CreateRequest): Buffer {
  return encodeFrame(
    types.create,
    u32(request),
    textField(1, order.id),
    textField(3, order.directory),
    ...order.layers.map((layer) => textField(4, layer)),
    ...order.usrLayers.map((layer) => textField(5, layer)),
    field(6, u32(order.uidBase)),
    textField(7, order.cgroup),
    ...order.v1Groups.map((group) => textField(8, group)),
    field(9, u64(order.deadlineBootMs)),
    field(10, u64(order.generation)),
    field(11, u32(order.noNewPrivileges ? 1 : 0)),
    field(12, u64(order.fence)),
    ...order.openGuards.map((guard) => textField(13, guard)),
    textField(14, order.endFile),
    ...(order.network === undefined ? [] : [field(15, linkFields(order.network))]),
    ...(order.writable === undefined ? [] : [textField(20, order.writable)]),
  );
}

export function removeFrame(request: number, path: string): Buffer {
  return encodeFrame(types.remove, u32(request), Buffer.from(path));
}

export function probeFrame(request: number, guard: string): Buffer {
  return encodeFrame(types.probe, u32(request), Buffer.from(guard));
}

export function routerFrame(request: number, path: string): Buffer {
  return encodeFrame(types.router, u32(request), Buffer.from(path));
}

export function routerCloseFrame(request: number, path: string): Buffer {
  return encodeFrame(types.routerClose, u32(request), Buffer.from(path));
}

export function attachFrame(request: number, order: { readonly link: NetworkLink; readonly cgroup: string }): Buffer {
  return encodeFrame(types.attach, u32(request), linkFields(order.link), textField(2, order.cgroup));
}

export interface ToolRequest {
  readonly tool: NetworkTool;
  /** Absent: in the machine's own namespace. */
  readonly router?: string;
  readonly input: string;
}

export function toolFrame(request: number, order: ToolRequest): Buffer {
  return encodeFrame(
    types.tool,
    u32(request),
    field(1, Buffer.of(toolNumbers[order.tool])),
    ...(order.router === undefined ? [] : [textField(2, order.router)]),
    textField(3, order.input),
  );
}

function linkFields(link: NetworkLink): Buffer {
  return Buffer.concat([
    textField(1, link.router),
    field(3, u32(link.slot)),
    textField(4, link.alias),
    field(5, link.address4),
    field(6, link.gateway4),
    ...(link.address6 === undefined ? [] : [field(7, link.address6)]),
  ]);
}

export function layerFrame(request: number, operation: string, words: readonly string[]): Buffer {
  return encodeFrame(types.layer, u32(request), textField(1, operation), ...words.map((word) => textField(2, word)));
}

export function parseSpawnerAnswer(frame: Frame): SpawnerAnswer {
  const body = new BodyReader(frame.body);
  switch (frame.type) {
    case types.helloOk:
      return { kind: 'hello', version: body.u16() };
    case types.created:
      return { kind: 'created', request: body.u32(), pid: body.i32() };
    case types.removed:
    case types.probed:
    case types.networkDone:
      return { kind: 'done', request: body.u32() };
    case types.layerDone:
      return { kind: 'layer', request: body.u32(), result: body.rest().toString('utf8') };
    case types.failed:
      return {
        kind: 'failed',
        request: body.u32(),
        errno: body.u32(),
        step: body.text(body.u16()),
        message: body.rest().toString('utf8'),
      };
    default:
      throw new MalformedFrame(`The spawner sent a frame of type ${frame.type}.`);
  }
}
