import { expect, test } from 'vitest';
import type { CliIo } from './cli-io.ts';
import { SyncProgressLine } from './sync-progress.ts';

function lineOn(options: { readonly isTerminal: boolean; readonly isQuiet: boolean }) {
  let written = '';
  let nowMs = 0;
  const write = async (data: string | Uint8Array) => {
    written += String(data);
  };
  const io = { stderr: { write, isTerminal: options.isTerminal }, nowMs: () => nowMs } as unknown as CliIo;
  const line = new SyncProgressLine(io, options);
  const show = (phase: 'snapshot' | 'send' | 'receive' | 'apply' | 'done', files: number, bytes: number) => {
    nowMs += 150;
    line.show({ phase, files, bytes });
  };
  return { show, written: () => written };
}

test('files and bytes are shown on one line that goes away, and what is quick shows nothing', () => {
  const { show, written } = lineOn({ isTerminal: true, isQuiet: false });
  show('snapshot', 3, 10);
  expect(written()).toBe('');
  show('send', 3, 5 * 1024 * 1024);
  show('send', 3, 6 * 1024 * 1024);
  show('receive', 0, 2_048);
  show('done', 0, 0);
  expect(written().split('\r').slice(1)).toEqual([
    expect.stringMatching(/^Sending 3 files, 5 MiB/),
    expect.stringMatching(/^Receiving 2 KiB/),
    '\x1b[K',
  ]);
  const before = written();
  show('done', 0, 0);
  expect(written()).toBe(before);
});

test('nothing is shown with --json or where stderr is no terminal', () => {
  for (const options of [
    { isTerminal: true, isQuiet: true },
    { isTerminal: false, isQuiet: false },
  ]) {
    const { show, written } = lineOn(options);
    for (const bytes of [1, 2, 3]) show('send', 1, bytes);
    show('done', 0, 0);
    expect(written()).toBe('');
  }
});
