/** The terminal that this process was started in, or the pipe that stands in for it. */
import type { LocalTerminal } from './cli-io.ts';

export function localTerminal(): LocalTerminal {
  const { stdin, stdout } = process;
  return {
    isTerminal: stdin.isTTY === true,
    size: () => (stdout.isTTY ? { columns: stdout.columns, rows: stdout.rows } : undefined),
    setRaw() {
      if (!stdin.isTTY) return () => {};
      const restore = () => {
        process.off('exit', restore);
        stdin.setRawMode(false);
      };
      stdin.setRawMode(true);
      // Also after a failure that nobody caught: a shell that does not echo is of no use to anybody.
      process.on('exit', restore);
      return restore;
    },
    onInput(listener, onEnd) {
      stdin.on('data', listener);
      stdin.on('end', onEnd);
      stdin.resume();
      return () => {
        stdin.off('data', listener);
        stdin.off('end', onEnd);
        stdin.pause();
        stdin.unref?.();
      };
    },
    onResize(listener) {
      stdout.on('resize', listener);
      return () => stdout.off('resize', listener);
    },
  };
}
