/** Where HEAD of the user's repository is. Read from its files where that is plain, because every sync asks; else git is asked. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Checkout, userCall } from './checkout.ts';
import { git } from './git-process.ts';

export interface LocalHead {
  readonly head: string | null;
  /** Full name of the ref that HEAD points to; null: detached, or no git. */
  readonly branch: string | null;
}

const commitLine = /^[0-9a-f]{40}\n?$/;

export async function localHead(checkout: Checkout): Promise<LocalHead> {
  if (checkout.kind === 'plain') return { head: null, branch: null };
  const symbolic = await readFile(join(checkout.gitDirectory ?? '', 'HEAD'), 'utf8');
  const branch = symbolic.startsWith('ref: ') ? symbolic.slice(5).trim() : null;
  return { head: await headCommit(checkout, branch), branch };
}

export async function headCommit(checkout: Checkout, branch: string | null = null): Promise<string | null> {
  const loose = branch?.startsWith('refs/heads/') ? await looseRef(checkout, branch) : undefined;
  if (loose !== undefined) return loose;
  const { code, stdout } = await git(['rev-parse', '--verify', '-q', 'HEAD'], userCall(checkout, { accept: [1, 128] }));
  return code === 0 ? stdout.toString().trim() : null;
}

async function looseRef({ commonDirectory = '' }: Checkout, ref: string): Promise<string | undefined> {
  const text = await readFile(join(commonDirectory, ref), 'utf8').catch(() => '');
  return commitLine.test(text) ? text.trim() : undefined;
}
