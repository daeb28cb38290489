/** Where a shell is, as the kernel knows it: also while a command runs in it. */
import { PlatformError } from '../../protocol/index.ts';
import { stat } from '../files/actions.ts';
import type { FileContext } from '../files/call.ts';

/** Of a session of the context's user. null: the shell has ended. A directory that was removed has ` (deleted)` behind its name. */
export async function sessionDirectory(context: FileContext, pid: number): Promise<string | null> {
  try {
    const { linkTarget } = await stat(context, `/proc/${pid}/cwd`, { follow: false });
    return linkTarget;
  } catch (error) {
    if (error instanceof PlatformError && error.code === 'file_not_found') return null;
    throw error;
  }
}
