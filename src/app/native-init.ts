/**
 * Where the native init is, built when it is needed for the first time.
 *
 *   checkout    native/atoll-init, kept up to date by scripts/setup.mjs
 *   installed   build/ in the package, or where that cannot be written
 *               ${XDG_CACHE_HOME:-~/.cache}/atoll/<version>-<hash of the sources>/
 *
 * The program runs as root, so one that somebody else could have put or changed there is refused. native/build.sh makes it
 * under another name and renames it into place: whoever finds it finds it whole, and two who build at once do no harm.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, constants, lstat, mkdir, readdir, readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';

const initName = 'atoll-init';
const compilerFix = 'On Debian: apt-get install gcc libc6-dev';
/** Of what a failed build says, this much is repeated. */
const buildOutputLimit = 4_000;

export interface NativeInitOptions {
  /** The package or checkout; by default the one this file belongs to. */
  readonly packageDirectory?: string;
  /** Used where the package itself cannot be written. */
  readonly cacheDirectory?: string;
}

/** The path of the native init. Builds it when it is absent or of other sources. */
export async function ensureNativeInit(options: NativeInitOptions = {}): Promise<string> {
  // This file is src/app/native-init.ts or dist/app/native-init.js: the package is two folders up in both.
  const packageDirectory = options.packageDirectory ?? dirname(dirname(import.meta.dirname));
  const setup = join(packageDirectory, 'scripts', 'setup.mjs');
  if (await exists(setup)) return ensureInCheckout(packageDirectory, setup);
  return ensureInstalled(packageDirectory, options.cacheDirectory ?? defaultCacheDirectory());
}

async function ensureInCheckout(checkout: string, setup: string): Promise<string> {
  const built = await run(process.execPath, [setup, '--native']);
  if (built.code !== 0) throw new Error(`The native init could not be built: ${built.output.trim()}`);
  return join(checkout, 'native', initName);
}

async function ensureInstalled(packageDirectory: string, cacheDirectory: string): Promise<string> {
  const hash = await hashSources(join(packageDirectory, 'native'));
  const version = await readVersion(packageDirectory);
  const candidates = [join(packageDirectory, 'build', hash), join(cacheDirectory, `${version}-${hash}`)];
  for (const directory of candidates) {
    if (await exists(join(directory, initName))) return trusted(directory, packageDirectory);
  }
  const directory = await firstWritable(candidates);
  await build({ sources: join(packageDirectory, 'native'), directory });
  return trusted(directory, packageDirectory);
}

/** Refuses what somebody could have written who could not have written the rest of the package as well. */
async function trusted(directory: string, packageDirectory: string): Promise<string> {
  const path = join(directory, initName);
  const owners = [0, process.geteuid?.(), (await lstat(packageDirectory)).uid];
  for (const entry of [directory, path]) {
    const { uid, mode } = await lstat(entry);
    if (!owners.includes(uid) || (mode & 0o022) !== 0) {
      throw new Error(
        `${entry} belongs to or can be written by another user, so it is not run. Remove it; the next start builds it anew.`,
      );
    }
  }
  return path;
}

async function firstWritable(candidates: readonly string[]): Promise<string> {
  const reasons: string[] = [];
  for (const directory of candidates) {
    try {
      await mkdir(directory, { recursive: true, mode: 0o755 });
      await access(directory, constants.W_OK);
      return directory;
    } catch (error) {
      reasons.push((error as Error).message);
    }
  }
  throw new Error(
    `There is no place to build the native init in: ${reasons.join('; ')}. Make one of these writable, or set XDG_CACHE_HOME.`,
  );
}

async function build(options: { readonly sources: string; readonly directory: string }): Promise<void> {
  const script = join(options.sources, 'build.sh');
  // Whatever the caller's umask: a program that its group may write is not trusted.
  const built = await run('sh', ['-c', 'umask 022; exec sh "$0" "$1"', script, join(options.directory, initName)]);
  if (built.code === 0) return;
  throw new Error(`The native init could not be built; it needs a C compiler. ${compilerFix}\n${built.output.trim()}`);
}

async function hashSources(directory: string): Promise<string> {
  const hash = createHash('sha256');
  const names = (await readdir(directory)).filter((name) => /\.[ch]$/.test(name) || name === 'build.sh');
  for (const name of names.sort())
    hash
      .update(`${name}\0`)
      .update(await readFile(join(directory, name)))
      .update('\0');
  return hash.digest('hex').slice(0, 16);
}

async function readVersion(packageDirectory: string): Promise<string> {
  const manifest = JSON.parse(await readFile(join(packageDirectory, 'package.json'), 'utf8')) as { version: string };
  return manifest.version;
}

function defaultCacheDirectory(): string {
  const base = process.env['XDG_CACHE_HOME'];
  // The specification says to ignore a relative one.
  return join(base?.startsWith('/') ? base : join(homedir(), '.cache'), 'atoll');
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

function run(program: string, args: readonly string[]): Promise<{ readonly code: number; readonly output: string }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ code: number; output: string }>();
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  const keep = (chunk: Buffer) => {
    output = (output + chunk.toString()).slice(-buildOutputLimit);
  };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  child.on('error', reject);
  child.on('close', (code) => resolve({ code: code ?? 1, output }));
  return promise;
}
