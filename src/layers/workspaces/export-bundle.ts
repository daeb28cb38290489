/** A commit with its history as a bundle whose one head is refs/heads/main. The head is written here, so that no ref has to exist for it. */
import type { WorkspaceLimits } from './content-limits.ts';
import type { GitProgram } from './git-program.ts';

export async function* exportBundle(
  git: GitProgram,
  repository: string,
  order: { readonly commit: string; readonly since: readonly string[] },
  options: { readonly limits: WorkspaceLimits; readonly signal?: AbortSignal | undefined },
): AsyncGenerator<Uint8Array, void> {
  const call = { signal: options.signal, timeoutMs: options.limits.gitMs };
  const without = order.since.map((id) => `^${id}`);
  // What the receiver must have: the commits just outside. git names them with a minus.
  const words = ['rev-list', '--boundary', order.commit, ...without];
  const lines = (await git.run(repository, words, call)).stdout.toString('utf8').split('\n');
  const prerequisites = lines.filter((line) => line.startsWith('-')).map((line) => `${line}\n`);
  const refs = `${order.commit} refs/heads/main\n${order.commit} HEAD\n`;
  yield Buffer.from(`# v2 git bundle\n${prerequisites.join('')}${refs}\n`);
  const stdin = `${[order.commit, ...without].join('\n')}\n`;
  const pack = ['pack-objects', '-q', '--revs', '--stdout', '--thin', '--delta-base-offset'];
  yield* git.stream(repository, pack, { ...call, stdin });
}
