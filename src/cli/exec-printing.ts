/** The result of a command on our own stdout, stderr and exit code; with `--json` one object. */
import type { ExecResult } from '../sdk/index.ts';
import type { CommandCall } from './command-call.ts';

export async function printResult(call: CommandCall, result: ExecResult): Promise<void> {
  call.exitCode = result.exitCode;
  const { stdoutBytes, stderrBytes, ...rest } = result;
  if (call.isJson) {
    const isText = isUtf8(stdoutBytes) && isUtf8(stderrBytes);
    const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64');
    const outputs = isText ? {} : { stdout: base64(stdoutBytes), stderr: base64(stderrBytes) };
    await call.print({ ...rest, ...outputs, encoding: isText ? 'utf8' : 'base64' }, () => '');
    return;
  }
  await Promise.all([call.io.stdout.write(stdoutBytes), call.io.stderr.write(stderrBytes)]);
  if (result.stdoutTruncated) await call.note(`atoll: stdout was cut after ${stdoutBytes.byteLength} bytes.`);
  if (result.stderrTruncated) await call.note(`atoll: stderr was cut after ${stderrBytes.byteLength} bytes.`);
}

function isUtf8(bytes: Uint8Array): boolean {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}
