/** Takes a workspace's bundle into the repository of our own. Its header and its pack come from outside and are checked as such. */
import { createReadStream, createWriteStream } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { PlatformError } from '../../protocol/index.ts';
import { type Checkout, shadowCall, userCall } from '../sync/checkout.ts';
import { git } from '../sync/git-process.ts';
import type { SyncLimits } from '../sync/options.ts';
import { takePack } from '../sync/packs.ts';
import type { PlanTarget } from './plan-target.ts';

const headerLimitBytes = 1024 * 1024;
const commitName = /^[0-9a-f]{40}$/;

/** Afterwards `commit`, `base` and everything they lead to are in the shadow. */
export async function takeIncoming(checkout: Checkout, target: PlanTarget, limits: SyncLimits): Promise<void> {
  const { base, commit, workspace } = target;
  if (!commitName.test(base) || !commitName.test(commit)) throw unsafe(workspace, 'is named by no commits');
  const since = checkout.kind === 'git' && (await hasCommit(checkout, base)) ? [base] : [];
  const path = join(checkout.directory, 'bundle');
  try {
    let bytes = 0;
    const counted = async function* (source: AsyncIterable<Uint8Array>) {
      for await (const chunk of source) {
        bytes += chunk.byteLength;
        if (bytes > limits.totalBytes) {
          const message = `The result for ${workspace} is more than ${limits.totalBytes} bytes. Nothing was changed.`;
          throw new PlatformError('sync_limit_exceeded', message, { details: { limits } });
        }
        yield chunk;
      }
    };
    await pipeline(target.openBundle(since), counted, createWriteStream(path, { mode: 0o600 }));
    const start = await packStart(path, workspace);
    await pipeline(createReadStream(path, { start }), createWriteStream(`${path}.pack`, { mode: 0o600 }));
    await takePack(checkout, { path: `${path}.pack`, bytes: bytes - start }, { limits });
  } finally {
    await rm(path, { force: true });
    await rm(`${path}.pack`, { force: true });
  }
  await checkConnected(checkout, target, since);
}

async function hasCommit(checkout: Checkout, commit: string): Promise<boolean> {
  const { code } = await git(['cat-file', '-e', `${commit}^{commit}`], userCall(checkout, { accept: [1, 128] }));
  return code === 0;
}

/** Where the pack begins, behind a header that names only what we know. */
async function packStart(path: string, workspace: string): Promise<number> {
  const file = await open(path, 'r');
  try {
    const head = Buffer.alloc(headerLimitBytes);
    const { bytesRead } = await file.read(head, 0, headerLimitBytes, 0);
    const end = head.subarray(0, bytesRead).indexOf('\n\n');
    if (end === -1) throw unsafe(workspace, 'has no good header');
    const [first, ...lines] = head.toString('latin1', 0, end).split('\n');
    if (first !== '# v2 git bundle' && first !== '# v3 git bundle') throw unsafe(workspace, 'is no git bundle');
    const isKnown = (line: string) => line === '@object-format=sha1' || /^-?[0-9a-f]{40}( |$)/.test(line);
    if (!lines.every(isKnown)) throw unsafe(workspace, 'needs what is not supported');
    return end + 2;
  } finally {
    await file.close();
  }
}

/** Every object that the result leads to is here; what a bundle left out is not discovered later, in the user's repository. */
async function checkConnected(
  checkout: Checkout,
  { workspace, base, commit }: PlanTarget,
  known: readonly string[],
): Promise<void> {
  const words = ['rev-list', '--objects', '--quiet', commit, base, '--not', ...known];
  const { code } = await git(words, shadowCall(checkout, { accept: [1, 128] }));
  if (code !== 0) throw unsafe(workspace, 'is not whole');
}

function unsafe(workspace: string, what: string): PlatformError {
  return new PlatformError('sync_unsafe', `The bundle of ${workspace} ${what}. Nothing was changed.`);
}
