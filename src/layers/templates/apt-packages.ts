/**
 * Debian packages from the sources that this machine is configured with: its lists of sources, keyrings, proxies and credentials are used as
 * they are, with a state and a cache of our own. Apt verifies signatures and digests; nothing that is brought is executed here.
 *
 * Invariant: a package in the cache is one that apt has verified when it was brought, and is compared with the lists again on every use.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { type Clock, KeyedMutex } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';

/** As Debian's policy has it, with an architecture or a version behind it. Never an option, and never a removal (`name-`). */
export const packageName = /^[a-z0-9][a-z0-9+.-]*[a-z0-9+.](:[a-z0-9-]+[a-z0-9])?(=[A-Za-z0-9.+:~-]+)?$/;

/** Lists that are older are asked for again. */
const listsMaxAgeMs = 24 * 3600 * 1000;
const outputMaxBytes = 64 * 1024 * 1024;
const saidMax = 4_000;

export interface AptOptions {
  /** Our own state and cache; kept between builds. */
  readonly directory: string;
  /** The machine's configuration. Default: /etc/apt. */
  readonly configuration?: string | undefined;
  readonly clock: Clock;
}

export interface ResolvedPackage {
  readonly file: string;
  readonly sha256: string;
  readonly path: string;
}

export interface ResolvedPackages {
  /** What Debian calls essential, with what it needs: enough to run maintainer scripts. */
  readonly essential: readonly ResolvedPackage[];
  readonly others: readonly ResolvedPackage[];
}

export class AptPackages {
  readonly #options: AptOptions;
  /** Guards our state and cache of apt, which takes locks of its own and would fail instead of waiting. Rank 3, alone. */
  readonly #aptLock = new KeyedMutex<'apt'>({ name: 'apt', rank: 3 });

  constructor(options: AptOptions) {
    this.#options = options;
  }

  /** Finds the packages with everything they need, and brings those that are not here. */
  async bring(
    packages: readonly string[],
    options: { readonly say: (text: string) => void; readonly signal: AbortSignal },
  ): Promise<ResolvedPackages> {
    for (const name of packages) if (!packageName.test(name)) throw unavailable(`"${name}" is no name of a package.`);
    return await this.#aptLock.run('apt', async () => {
      await this.#prepare();
      if (await this.#areListsOld()) {
        options.say('asking the sources of this machine for their lists of packages\n');
        // A source that does not answer is no failure as long as the packages are found in others.
        await this.#apt(['update'], options.signal).catch((error: unknown) =>
          options.say(`${(error as Error).message}\n`),
        );
        await writeFile(this.#stamp, '');
      }
      const essential = await this.#resolve(['?essential'], options.signal);
      const wanted = ['?essential', 'apt', ...packages];
      const all = await this.#resolve(wanted, options.signal);
      options.say(`bringing ${all.length} packages\n`);
      await this.#apt(['install', '--download-only', ...wanted], options.signal);
      for (const one of all) await verify(one);
      const first = new Set(essential.map(({ sha256 }) => sha256));
      return {
        essential: all.filter((one) => first.has(one.sha256)),
        others: all.filter((one) => !first.has(one.sha256)),
      };
    });
  }

  async #prepare(): Promise<void> {
    const { directory, configuration = '/etc/apt' } = this.#options;
    for (const name of ['state/lists/partial', 'archives/partial']) {
      await mkdir(join(directory, name), { recursive: true, mode: 0o755 });
    }
    await writeFile(join(directory, 'status'), '', { flag: 'a' });
    // What the machine does around its own installations is not for ours.
    const cleared = ['DPkg::Pre-Invoke', 'DPkg::Post-Invoke', 'DPkg::Pre-Install-Pkgs', 'APT::Update::Pre-Invoke'];
    const hooks = [...cleared, 'APT::Update::Post-Invoke', 'APT::Update::Post-Invoke-Success'];
    const settings = {
      'Dir::Etc': configuration,
      'Dir::State': join(directory, 'state'),
      'Dir::State::status': join(directory, 'status'),
      'Dir::Cache': directory,
      'Dir::Cache::archives': join(directory, 'archives'),
      'Dir::Log': directory,
      'APT::Install-Recommends': 'false',
      'APT::Install-Suggests': 'false',
      'APT::Keep-Downloaded-Packages': 'true',
      'APT::Sandbox::User': 'root',
      'Acquire::ForceHash': 'SHA256',
      'Acquire::Retries': '3',
    };
    const lines = Object.entries(settings).map(([name, value]) => `${name} ${JSON.stringify(value)};\n`);
    await writeFile(this.#configFile, [...hooks.map((name) => `#clear ${name};\n`), ...lines].join(''));
  }

  async #areListsOld(): Promise<boolean> {
    const names = await readdir(join(this.#options.directory, 'state/lists'));
    if (!names.some((name) => name.includes('_Packages'))) return true;
    const stamp = await stat(this.#stamp).catch(() => undefined);
    return stamp === undefined || this.#options.clock.nowMs() - stamp.mtimeMs > listsMaxAgeMs;
  }

  async #resolve(wanted: readonly string[], signal: AbortSignal): Promise<ResolvedPackage[]> {
    const text = await this.#apt(['install', '--print-uris', '--quiet=2', ...wanted], signal);
    return text.split('\n').flatMap((line) => {
      const match = /^'([^']+)' (\S+) \d+ SHA256:([0-9a-f]{64})$/.exec(line);
      if (match === null) return [];
      const [, uri = '', file = '', sha256 = ''] = match;
      // Apt uses files of this machine where they are.
      const path = uri.startsWith('file:')
        ? decodeURIComponent(uri.slice(5))
        : join(this.#options.directory, 'archives', file);
      return [{ file, sha256, path }];
    });
  }

  #apt(words: readonly string[], signal: AbortSignal): Promise<string> {
    // It dies with us: one that goes on would hold apt's own locks.
    const all = ['--pdeathsig', 'KILL', 'apt-get', '-c', this.#configFile, '-y', '-q', ...words];
    const env = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8', DEBIAN_FRONTEND: 'noninteractive' };
    return new Promise((resolve, reject) => {
      execFile('setpriv', all, { env, signal, maxBuffer: outputMaxBytes }, (error, stdout, stderr) => {
        if (error === null) return resolve(stdout);
        if (signal.aborted) return reject(error);
        const why =
          error.code === 'ENOENT' ? 'This machine has no apt-get with setpriv.' : stderr.trim().slice(-saidMax);
        reject(unavailable(why === '' ? 'apt-get failed without a word.' : why));
      });
    });
  }

  get #configFile(): string {
    return join(this.#options.directory, 'apt.conf');
  }

  get #stamp(): string {
    return join(this.#options.directory, 'updated');
  }
}

async function verify({ path, sha256, file }: ResolvedPackage): Promise<void> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash).catch((cause: unknown) => {
    throw unavailable(`The package ${file} was not brought.`, cause);
  });
  if (hash.digest('hex') !== sha256)
    throw unavailable(`The package ${file} is not the one that its source has signed.`);
}

function unavailable(message: string, cause?: unknown): PlatformError {
  return new PlatformError('packages_unavailable', message, { cause });
}
