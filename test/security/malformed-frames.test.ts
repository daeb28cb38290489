/**
 * Frames that nobody should send, to the spawner and to init, both built with the sanitizers: they neither end nor hang, they lose no
 * descriptor, and the next well-formed request is answered. Whoever can reach these sockets is the node; this is the second wall.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdir, readdir, readlink } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { encodeFrame, FrameReader, field, textField, u16, u32, u64 } from '../../src/base/index.ts';
import { AttackRig, type Target } from '../support/attack-rig.ts';
import { describeWith, requires } from '../support/requires.ts';
import { copySanitizedInit } from '../support/sanitized-init.ts';

const nobody = { uid: 65_534, gid: 65_534 };
const answerLimit = { limitBytes: 8 * 1024 * 1024 };
/** Frames that do what they say and would end the victim rightly, or remove a tree of the machine. */
const init = { deadline: 28, fence: 29, shutdown: 31 };
const spawner = { create: 10, remove: 13, probe: 15 };

describeWith(
  requires.root,
  requires.cgroups,
  requires.compiler,
)('malformed frames', () => {
  let rig: AttackRig;
  let target: Target;
  let program: string;

  beforeAll(async () => {
    const outside = await AttackRig.open();
    program = join(outside.directory, 'atoll-init-sanitized');
    await chmod(outside.directory, 0o755);
    await copySanitizedInit(program);
    rig = await AttackRig.open({ initProgram: program });
    target = await rig.sandbox();
    closeOutside = () => outside.close();
  }, 120_000);

  let closeOutside = async () => {};

  afterAll(async () => {
    await rig?.close();
    await closeOutside();
  });

  test('the sanitizers are in the program', async () => {
    // The control: without them a read past a buffer would go unnoticed.
    const { stdout } = await promisify(execFile)('sh', ['-c', `grep -c __asan_report ${program}`]);
    expect(Number(stdout)).toBeGreaterThan(0);
  });

  test('init takes any bytes on any connection and goes on', async () => {
    const pid = await target.initPid();
    // The node keeps one connection for the commands of this test.
    expect(await target.run(['true'])).toMatchObject({ exitCode: 0 });
    const before = await descriptorsOf(pid);
    await fc.assert(
      fc.asyncProperty(initSession(), async (session) => {
        const socket = connect(join(target.directory(), 'init.sock'));
        await send(socket, session);
      }),
      { numRuns: 400, endOnFailure: true },
    );
    expect(await target.run(['echo', 'alive'])).toMatchObject({ stdout: 'alive\n' });
    expect(await target.initPid()).toBe(pid);
    await until(async () => (await descriptorsOf(pid)) <= before, 'init gave every descriptor back');
    await until(async () => (await statusOf(target)).running === 0, 'every run has ended');
    // The control: a good part of it was understood, and ran.
    expect((await statusOf(target)).kept).toBeGreaterThan(10);
  });

  for (const [title, bytes] of malformedForInit()) {
    test(`init ends the connection for ${title}`, async () => {
      const socket = connect(join(target.directory(), 'init.sock'));
      socket.on('error', () => {});
      socket.write(bytes);
      socket.resume();
      await once(socket, 'close');
      expect(await target.run(['echo', 'alive'])).toMatchObject({ stdout: 'alive\n' });
    });
  }

  test('a thousand connections that say nothing do not keep the next from being served', async () => {
    const path = join(target.directory(), 'init.sock');
    const sockets = Array.from({ length: 1_000 }, () => connect(path).on('error', () => {}));
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    for (const socket of sockets) socket.write(Buffer.of(1, 0));
    expect(await target.run(['echo', 'alive'])).toMatchObject({ stdout: 'alive\n' });
    for (const socket of sockets) socket.destroy();
    expect(await target.run(['echo', 'alive'])).toMatchObject({ stdout: 'alive\n' });
  });

  test('the spawner takes any bytes and the next one answers', async () => {
    await fc.assert(
      fc.asyncProperty(spawnerSession(), async (session) => {
        const { child, socket } = startSpawner(program);
        const exited = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
        await send(socket, session);
        const [code, signal] = await exited;
        // The sanitizers end with 1 and an abort; the end of the socket, or a malformed frame, is an ordinary end.
        expect({ signal, stderr: child.collected.join('') }).toEqual({ signal: null, stderr: '' });
        expect(code).not.toBeNull();
      }),
      { numRuns: 60, endOnFailure: true },
    );
  });

  test('the spawner answers a well-formed request after refused ones', async () => {
    const parent = join(rig.directory, 'of-nobody');
    const tree = join(parent, 'tree');
    await chmod(rig.directory, 0o755);
    await mkdir(join(tree, 'deep'), { recursive: true });
    for (const directory of [join(tree, 'deep'), tree, parent]) await chown(directory, nobody.uid, nobody.gid);
    const { child, socket } = startSpawner(program, { directory: parent });
    const exited = once(child, 'exit');
    const answers = new Map<number, number>();
    const done = Promise.withResolvers<void>();
    const reader = new FrameReader(answerLimit);
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      for (const { type, body } of reader.push(chunk)) {
        if (type !== 2) answers.set(body.readUInt32LE(0), type);
      }
      if (answers.size >= 3 + 6) done.resolve();
    });
    socket.write(encodeFrame(1, u16(1)));
    socket.write(encodeFrame(spawner.probe, u32(1), Buffer.from('no such guard')));
    socket.write(createFrame(3, '/nothing/for/anybody'));
    // Outside its own directory, and the ways to spell that: refused, though this one is nobody's to begin with.
    const outside = [parent, `${parent}/`, `${parent}/../of-nobody/tree`, `${parent}/./tree`, `${parent}-2/x`, '/tmp'];
    for (const [index, path] of outside.entries()) {
      socket.write(encodeFrame(spawner.remove, u32(20 + index), Buffer.from(path)));
    }
    socket.write(encodeFrame(spawner.remove, u32(9), Buffer.from(tree)));
    await done.promise;
    socket.end();
    await exited;
    expect(outside.map((_, index) => answers.get(20 + index))).toEqual(outside.map(() => 12));
    expect(answers.get(9)).toBe(14);
    expect(await readdir(parent)).toEqual([]);
    expect(child.collected.join('')).toBe('');
  });
});

interface Session {
  readonly chunks: readonly Uint8Array[];
  readonly stays: boolean;
}

interface SpawnerChild {
  readonly collected: string[];
}

/**
 * As nobody, without a directory of its own unless a test gives one, and then on a file tree that cannot be written: no changed byte
 * may ever make an order that matters.
 */
function startSpawner(program: string, options: { readonly directory?: string } = {}) {
  const drop = `exec setpriv --reuid ${nobody.uid} --regid ${nobody.gid} --clear-groups "$0" spawner "$@"`;
  const script = options.directory !== undefined ? drop : `mount -o remount,bind,ro / && ${drop}`;
  const argv = [
    '--mount',
    'sh',
    '-c',
    script,
    program,
    ...(options.directory === undefined ? [] : [options.directory]),
  ];
  const child = spawn('unshare', argv, { cwd: '/', stdio: ['ignore', 'ignore', 'pipe', 'pipe'] });
  const collected: string[] = [];
  child.stderr!.on('data', (chunk: Buffer) => void collected.push(chunk.toString()));
  const socket = child.stdio[3] as Duplex;
  return { child: Object.assign(child, { collected } satisfies SpawnerChild), socket };
}

/** Stays for the first answer, or leaves as soon as the kernel took the bytes. */
async function send(socket: Socket | Duplex, session: Session): Promise<void> {
  const closed = Promise.withResolvers<void>();
  const answered = Promise.withResolvers<void>();
  socket.on('error', () => {});
  socket.on('close', () => closed.resolve());
  socket.on('data', () => answered.resolve());
  for (const chunk of session.chunks) {
    const taken = Promise.withResolvers<void>();
    socket.write(chunk, () => taken.resolve());
    await Promise.race([taken.promise, closed.promise]);
  }
  if (session.stays) {
    // Half a frame is answered by nobody; its end is.
    socket.end();
    await Promise.race([answered.promise, closed.promise]);
  }
  socket.destroy();
  await closed.promise;
}

function createFrame(request: number, directory: string): Buffer {
  return encodeFrame(
    spawner.create,
    u32(request),
    ...[
      textField(1, 'fuzz'),
      textField(3, directory),
      textField(4, `${directory}/layer`),
      textField(5, `${directory}/usr`),
    ],
    ...[field(6, u32(600_000_000)), textField(7, `${directory}/group`), textField(8, `${directory}/v1`)],
    ...[field(9, u64(0)), field(10, u64(1)), field(11, u32(0)), field(12, u64(0)), textField(14, 'end')],
  );
}

function runFrame(run: string, argv: readonly string[], flags: number): Buffer {
  return encodeFrame(
    40,
    ...[textField(1, run), ...argv.map((argument) => textField(2, argument)), textField(3, 'A=b'), textField(4, '/')],
    ...[textField(5, '0'), field(6, u32(flags)), field(7, u64(2_000)), field(8, u32(10)), field(10, u64(1))],
  );
}

/** Well-formed frames, cut, changed and repeated: most of what a parser can get wrong is one byte away from right. */
function mutated(frames: fc.Arbitrary<Buffer>, harmless: (frame: Buffer) => Buffer): fc.Arbitrary<Uint8Array> {
  const change = fc.record({ at: fc.nat(), to: fc.integer({ min: 0, max: 255 }) });
  const changed = fc.tuple(
    frames,
    fc.array(change, { maxLength: 4 }),
    fc.option(fc.nat(), { nil: undefined, freq: 4 }),
  );
  const near = changed.map(([frame, changes, cut]) => {
    const bytes = Buffer.from(frame);
    for (const { at, to } of changes) bytes[at % bytes.length] = to;
    return harmless(cut === undefined ? bytes : bytes.subarray(0, cut % (bytes.length + 1)));
  });
  const shapes = fc.tuple(fc.integer({ min: 0, max: 255 }), fc.uint8Array({ maxLength: 300 }));
  const framed = shapes.map(([type, body]) => harmless(encodeFrame(type, body)));
  return fc.oneof({ weight: 5, arbitrary: near }, { weight: 2, arbitrary: framed }, fc.uint8Array({ maxLength: 200 }));
}

/** Turns a frame of one of these types into one of an unknown type. */
function without(types: readonly number[]): (frame: Buffer) => Buffer {
  return (frame) => {
    if (frame.length > 4 && types.includes(frame[4]!)) frame[4] = 99;
    return frame;
  };
}

/** Each kind of connection with the frames that belong on it, some of them as they should be, and sometimes with any other. */
function initSession(): fc.Arbitrary<Session> {
  const request = u32(7);
  const run = fc.string({ minLength: 1, maxLength: 8 });
  const named = run.map((name) => Buffer.concat([Buffer.of(Buffer.byteLength(name)), Buffer.from(name)]));
  const runs = fc
    .tuple(
      fc.uuid(),
      fc.integer({ min: 0, max: 15 }),
      fc.constantFrom('cat; echo x', 'echo x >&2', 'sleep 1 &', 'nothing'),
    )
    .map(([id, flags, command]) => runFrame(id, ['sh', '-c', command], flags));
  const controls = fc.oneof(
    fc.constantFrom(22, 24, 32).map((type) => encodeFrame(type, request)),
    named.map((name) => encodeFrame(26, request, Buffer.of(2, 15), name)),
    named.map((name) => encodeFrame(27, request, u16(80), u16(25), name)),
    named.map((name) => encodeFrame(30, request, name)),
  );
  const inputs = fc.oneof(
    fc.uint8Array({ maxLength: 500 }).map((bytes) => encodeFrame(47, bytes)),
    fc.constant(encodeFrame(48)),
    fc.constant(encodeFrame(49, Buffer.of(2, 9))),
  );
  const relays = fc.integer({ min: 0, max: 65_535 }).map((port) => encodeFrame(60, u16(port), Buffer.of(0)));
  const any = fc.oneof(runs, controls, inputs, relays);
  const harmless = without([init.deadline, init.fence, init.shutdown]);
  const some = (frames: fc.Arbitrary<Buffer>) => fc.oneof(frames, mutated(frames, harmless));
  const connection = (kind: number, first: fc.Arbitrary<Buffer>, later: fc.Arbitrary<Buffer>) => {
    const hello = encodeFrame(1, u16(1), Buffer.of(kind));
    return fc
      .tuple(some(first), fc.array(some(later), { maxLength: 5 }), fc.boolean())
      .map(([one, rest, stays]) => ({ chunks: [hello, one, ...rest], stays }));
  };
  const hellos = fc.integer({ min: 0, max: 4 }).map((kind) => encodeFrame(1, u16(1), Buffer.of(kind)));
  const strangers = fc.array(mutated(fc.oneof(hellos, any), harmless), { minLength: 1, maxLength: 6 });
  return fc.oneof(
    connection(1, controls, controls),
    connection(2, runs, inputs),
    connection(3, relays, any),
    connection(1, any, any),
    connection(2, any, any),
    fc.tuple(strangers, fc.boolean()).map(([chunks, stays]) => ({ chunks, stays })),
  );
}

function spawnerSession(): fc.Arbitrary<Session> {
  const frames = fc.oneof(
    fc.nat().map((request) => createFrame(request % 2 ** 32, '/nothing/for/anybody')),
    fc.string({ maxLength: 20 }).map((guard) => encodeFrame(spawner.probe, u32(1), Buffer.from(guard))),
  );
  const hello = encodeFrame(1, u16(1));
  const after = fc.array(mutated(frames, without([spawner.remove])), { maxLength: 6 });
  return fc.tuple(after, fc.boolean()).map(([rest, stays]) => ({ chunks: [hello, ...rest], stays }));
}

function malformedForInit(): readonly (readonly [string, Buffer])[] {
  const control = encodeFrame(1, u16(1), Buffer.of(1));
  const run = encodeFrame(1, u16(1), Buffer.of(2));
  return [
    ['a length of nothing', u32(0)],
    ['a length beyond the limit', Buffer.concat([u32(8 * 1024 * 1024 + 1), Buffer.alloc(64)])],
    ['the largest length', Buffer.alloc(64, 0xff)],
    ['an unknown first frame', encodeFrame(77)],
    ['a hello that is too short', encodeFrame(1, Buffer.of(1))],
    ['a hello of another version', encodeFrame(1, u16(99), Buffer.of(1))],
    ['a hello of an unknown kind', encodeFrame(1, u16(1), Buffer.of(9))],
    ['a request without a number', Buffer.concat([control, encodeFrame(22)])],
    ['an unknown request', Buffer.concat([control, encodeFrame(200, u32(1))])],
    ['a name that is longer than its frame', Buffer.concat([control, encodeFrame(30, u32(1), Buffer.of(200, 65))])],
    ['a run without arguments', Buffer.concat([run, runFrame('r1', [], 0)])],
    [
      'a field that overruns its frame',
      Buffer.concat([run, encodeFrame(40, Buffer.of(1), u32(1_000_000), Buffer.from('x'))]),
    ],
    ['an unknown field', Buffer.concat([run, encodeFrame(40, field(88, u32(1)))])],
    [
      'a field twice',
      Buffer.concat([run, encodeFrame(40, textField(1, 'a'), textField(1, 'b'), textField(2, 'true'))]),
    ],
    [
      'a NUL in a text',
      Buffer.concat([run, encodeFrame(40, textField(1, 'a'), textField(2, 'tr\0ue'), textField(4, '/'))]),
    ],
  ];
}

/** Without those of run groups, of which init keeps a number open for the next runs. */
async function descriptorsOf(pid: number): Promise<number> {
  const directory = `/proc/${pid}/fd`;
  const links = (await readdir(directory)).map((name) => readlink(join(directory, name)).catch(() => ''));
  return (await Promise.all(links)).filter((path) => path !== '' && !/\/run\/\d+(\/|$)/.test(path)).length;
}

async function statusOf(target: Target): Promise<{ readonly running: number; readonly kept: number }> {
  const socket = connect(join(target.directory(), 'init.sock'));
  const reader = new FrameReader(answerLimit);
  const answer = Promise.withResolvers<Buffer>();
  socket.on('error', answer.reject);
  socket.on('data', (chunk: Buffer) => {
    for (const { type, body } of reader.push(chunk)) if (type === 23) answer.resolve(body);
  });
  socket.write(Buffer.concat([encodeFrame(1, u16(1), Buffer.of(1)), encodeFrame(22, u32(1))]));
  try {
    const body = await answer.promise;
    return { running: body.readUInt32LE(28), kept: body.readUInt32LE(32) };
  } finally {
    socket.destroy();
  }
}

/** Asks again until it is so; init tells of ends when they happen, but not to a connection that is gone. */
async function until(isSo: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + 45_000;
  while (!(await isSo())) expect(performance.now(), what).toBeLessThan(deadline);
}
