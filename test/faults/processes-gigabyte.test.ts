/**
 * A gigabyte of output, a reader that is slow, one that leaves and resumes by cursor again and again, and a server that is killed twice on the
 * way. Both readers get every byte that the retention promises, in its place, and hear of every byte that it does not.
 */
import { afterAll, beforeAll, expect } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { untilAnswered } from '../support/crashes.ts';
import { NumberedChecker, numberedBytes, numberedCommand } from '../support/numbered-lines.ts';
import { Platform } from '../support/platform.ts';
import { waitForFile } from '../support/processes.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

const keepBytes = 64 * 1024 * 1024;
const segmentBytes = 1024 * 1024;
const recordHeaderBytes = 13;
/** How far the slow reader stays behind the other. */
const behindBytes = 8 * 1024 * 1024;
/** Where the server is killed, and how often the resuming reader leaves. */
const killPlaces = [200_000_000, 600_000_000];
const leaveBytes = 100_000_000;

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start();
});
afterAll(() => platform.close());

/** One reader over all its connections. Checks that positions follow one another exactly, whoever died in between. */
class Reader {
  readonly checker = new NumberedChecker();
  position = 0;
  cursor: string | undefined;
  outputBytes = 0;
  droppedBytes = 0;
  connections = 0;
  isDone = false;
  #isReady = false;
  readonly #waiting = new Set<() => void>();

  /** Looked at again whenever this reader gets further. */
  async until(isTrue: () => boolean): Promise<void> {
    while (!isTrue()) await new Promise<void>((resolve) => this.#waiting.add(resolve));
  }

  /** Reads until the end, until `leave` says so, or until the server is gone. */
  async read(sandboxId: string, processId: string, pace: () => Promise<void>, leave: () => boolean): Promise<void> {
    const { client, server } = platform;
    const gone = new AbortController();
    void server.died.then(() => gone.abort());
    const process = await (await client.sandboxes.connect(sandboxId)).processes.get(processId);
    this.connections++;
    const from = { signal: gone.signal, ...(this.cursor !== undefined && { cursor: this.cursor }) };
    for await (const item of process.output(from)) {
      this.#take(item);
      if (item.kind === 'ended') this.isDone = true;
      for (const wake of this.#waiting) wake();
      this.#waiting.clear();
      await pace();
      if (leave()) return;
    }
  }

  #take(
    item: Awaited<ReturnType<ReturnType<Awaited<ReturnType<Sandbox['processes']['get']>>['output']>['next']>>['value'],
  ): void {
    if (item === undefined) return;
    const position = Number(item.cursor.split('.')[1]);
    if (item.kind === 'output') {
      expect(position).toBe(this.position + recordHeaderBytes + item.bytes.byteLength);
      // The first line, which says that it is ready, is not of the numbered ones.
      if (this.#isReady) this.checker.take(item.bytes);
      this.#isReady = true;
      this.outputBytes += item.bytes.byteLength;
    } else if (item.kind === 'dropped') {
      expect(position).toBe(this.position + item.bytes);
      this.droppedBytes += item.bytes;
      this.checker.gap();
    }
    this.position = position;
    this.cursor = item.cursor;
  }
}

test(
  'E86: 1 GB, a slow reader, one that resumes, and a server killed twice: every byte is there or told as dropped',
  async () => {
    const sandbox = await platform.client.sandboxes.create();
    const command = `echo ready; ${waitForFile('/tmp/go')}; exec ${numberedCommand}`;
    const { id } = await sandbox.processes.start(command, { keepBytes });
    const slow = new Reader();
    const resuming = new Reader();

    // Nothing but the first line is there until both have begun.
    const isAhead = () => resuming.isDone || slow.position < 100 || resuming.position - slow.position >= behindBytes;
    const slowPace = () => resuming.until(isAhead);
    const follow = async (reader: Reader, pace: () => Promise<void>, leave: () => boolean) => {
      while (!reader.isDone) {
        await untilAnswered(() => reader.read(sandbox.id, id, pace, leave).catch(asLost));
      }
    };
    let nextLeave = leaveBytes;
    const leave = () => {
      if (resuming.position < nextLeave) return false;
      nextLeave += leaveBytes;
      return true;
    };
    const killing = (async () => {
      for (const place of killPlaces) {
        await resuming.until(() => resuming.isDone || resuming.position >= place);
        await platform.restartServer();
      }
    })();
    const reading = Promise.all([
      follow(slow, slowPace, () => false),
      follow(resuming, async () => {}, leave),
      killing,
    ]);
    await Promise.all([slow.until(() => slow.position > 0), resuming.until(() => resuming.position > 0)]);
    await sandbox.exec('touch /tmp/go');
    await reading;

    const process = await (await platform.client.sandboxes.connect(sandbox.id)).processes.get(id);
    expect((await process.wait({ for: 'tree' })).exit).toMatchObject({ exitCode: 0 });
    const end = Number(process.view.output.end.split('.')[1]);
    for (const reader of [slow, resuming]) {
      expect(reader.position).toBe(end);
      expect(reader.checker.place).toBe(numberedBytes);
      const taken = reader.checker.checked + reader.checker.unplaced;
      expect(taken + 'ready\n'.length).toBe(reader.outputBytes);
      if (reader.droppedBytes === 0) expect(reader.checker.checked).toBe(numberedBytes);
      else expect(numberedBytes - taken).toBeLessThanOrEqual(reader.droppedBytes);
    }
    expect(resuming.connections).toBeGreaterThan(numberedBytes / leaveBytes - 1);

    // Whoever comes late gets what is promised: the newest, at least the limit less one segment.
    const late = new Reader();
    await late.read(
      sandbox.id,
      id,
      async () => {},
      () => false,
    );
    expect(end - late.droppedBytes).toBeGreaterThanOrEqual(keepBytes - segmentBytes);
    expect(late.checker.place).toBe(numberedBytes);
    const megabytes = (bytes: number) => Math.round(bytes / 1e6);
    console.info(
      `slow: ${slow.connections} connections, ${megabytes(slow.droppedBytes)} MB dropped; ` +
        `resuming: ${resuming.connections} connections, ${megabytes(resuming.droppedBytes)} MB dropped`,
    );
  },
  { timeout: 240_000 },
);

/** A reader whose server was killed under it connects again, as if its connection had been refused. */
function asLost(error: unknown): void {
  if (error instanceof Error && error.name === 'AbortError') return;
  throw error;
}
