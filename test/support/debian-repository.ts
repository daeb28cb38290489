/**
 * A Debian repository on this machine, made of the packages that are installed on it and signed with a key of its own: a source that needs no
 * network, with which templates are built as from any other. Made once per state of the machine, below `build/`, and shared by all tests.
 */
import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { chmod, cp, lstat, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const buildDirectory = join(import.meta.dirname, '../../build');
/** Change with what is below. */
const version = 2;

/** What `base` is made of, and a few more for tests. */
const wanted = [
  ...['apt', 'bash', 'ca-certificates', 'curl', 'git', 'less', 'ncurses-bin', 'passwd', 'procps', 'python3', 'sudo'],
  ...['xz-utils', 'libatomic1', 'libstdc++6', 'file'],
];

/** A directory for ATOLL_APT. */
export async function debianRepository(): Promise<string> {
  const status = await readFile('/var/lib/dpkg/status');
  const digest = createHash('sha256')
    .update(`${version}\n`)
    .update(wanted.join())
    .update(status)
    .digest('hex')
    .slice(0, 16);
  const directory = join(buildDirectory, `debian-repository-${digest}`);
  if ((await stat(directory).catch(() => undefined)) === undefined) await make(directory, status.toString('utf8'));
  return join(directory, 'apt');
}

async function make(directory: string, status: string): Promise<void> {
  const unfinished = `${directory}-${randomBytes(6).toString('hex')}`;
  const pool = join(unfinished, 'pool');
  await mkdir(pool, { recursive: true });
  try {
    const left = closure(parseStatus(status)).values();
    const worker = async () => {
      for (const entry of left) await repack(entry, { pool, scratch: join(unfinished, 'scratch') });
    };
    await Promise.all(cpus().map(worker));
    await rm(join(unfinished, 'scratch'), { recursive: true });
    await writeIndex(unfinished, pool);
    await writeConfiguration(unfinished, directory);
    await rename(unfinished, directory).catch(async (error: unknown) => {
      // Another test was first with the same one.
      if ((await stat(directory).catch(() => undefined)) === undefined) throw error;
    });
  } finally {
    await rm(unfinished, { recursive: true, force: true });
  }
}

type Entry = ReadonlyMap<string, string>;

function parseStatus(text: string): Map<string, Entry> {
  const found = new Map<string, Entry>();
  for (const paragraph of text.split('\n\n')) {
    const fields = new Map<string, string>();
    for (const field of paragraph.split(/\n(?! )/)) {
      const at = field.indexOf(':');
      if (at > 0) fields.set(field.slice(0, at), field.slice(at + 1).trim());
    }
    if (fields.get('Status')?.endsWith(' installed')) found.set(fields.get('Package')!, fields);
  }
  return found;
}

function closure(all: ReadonlyMap<string, Entry>): Entry[] {
  const providers = new Map<string, string[]>();
  for (const [name, entry] of all) {
    for (const virtual of namesIn(entry.get('Provides') ?? '').flat()) {
      providers.set(virtual, [...(providers.get(virtual) ?? []), name]);
    }
  }
  const essential = [...all].filter(([, entry]) => entry.get('Essential') === 'yes').map(([name]) => name);
  const queue = [...essential, ...wanted.filter((name) => all.has(name))];
  const taken = new Set<string>();
  for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
    if (taken.has(name) || !all.has(name)) continue;
    taken.add(name);
    const entry = all.get(name)!;
    for (const choices of namesIn(`${entry.get('Depends') ?? ''},${entry.get('Pre-Depends') ?? ''}`)) {
      const real = choices.flatMap((choice) => (all.has(choice) ? [choice] : (providers.get(choice) ?? [])));
      if (real[0] !== undefined) queue.push(real[0]);
    }
  }
  return [...taken].map((name) => all.get(name)!);
}

/** Alternatives stand beside each other. */
function namesIn(field: string): string[][] {
  const parts = field.split(',').map((part) => part.split('|').map((one) => one.trim().replace(/[ :(].*$/s, '')));
  return parts.map((choices) => choices.filter((name) => name !== '')).filter((choices) => choices.length > 0);
}

/** Puts an installed package together again: its files as they are here, its scripts, and the fields of its control file. */
async function repack(entry: Entry, options: { readonly pool: string; readonly scratch: string }): Promise<void> {
  const name = entry.get('Package')!;
  const info = '/var/lib/dpkg/info';
  const qualified = `${name}:${entry.get('Architecture')}`;
  const stem = (await lstat(`${info}/${qualified}.list`).catch(() => undefined)) ? qualified : name;
  const tree = join(options.scratch, name);
  await mkdir(join(tree, 'DEBIAN'), { recursive: true });
  const list = join(options.scratch, `${name}.list`);
  const files = (await readFile(`${info}/${stem}.list`, 'utf8'))
    .split('\n')
    .filter((path) => path !== '' && path !== '/.');
  const present = [];
  for (const path of files) {
    const stats = await lstat(path).catch(() => undefined);
    // The links of the merged /usr are directories to a package. What the machine has diverted or excluded is left out.
    const isMerged = stats?.isSymbolicLink() === true && /^\/[^/]+$/.test(path);
    if (stats !== undefined && !isMerged) present.push(path);
  }
  await writeFile(list, present.map((path) => `.${path}\n`).join(''));
  await run('/bin/sh', [
    '-c',
    'cd / && tar -c --no-recursion -T "$1" -f - | tar -x -p --keep-directory-symlink -f - -C "$2"',
    'sh',
    list,
    tree,
  ]);
  for (const part of [
    'preinst',
    'postinst',
    'prerm',
    'postrm',
    'triggers',
    'shlibs',
    'symbols',
    'templates',
    'config',
  ]) {
    await cp(`${info}/${stem}.${part}`, join(tree, 'DEBIAN', part)).catch(() => {});
  }
  const skipped = new Set(['Status', 'Conffiles', 'Config-Version']);
  const fields = [...entry].filter(([field]) => !skipped.has(field)).map(([field, value]) => `${field}: ${value}\n`);
  await writeFile(join(tree, 'DEBIAN', 'control'), fields.join(''));
  await chmod(join(tree, 'DEBIAN'), 0o755);
  await run('dpkg-deb', ['-Znone', '--build', tree, options.pool]);
  await rm(tree, { recursive: true });
}

async function writeIndex(directory: string, pool: string): Promise<void> {
  const paragraphs = [];
  for (const file of (await readdir(pool)).sort()) {
    const path = join(pool, file);
    const { stdout } = await run('dpkg-deb', ['--field', path]);
    const bytes = await readFile(path);
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    paragraphs.push(`${stdout.trimEnd()}\nFilename: ./pool/${file}\nSize: ${bytes.byteLength}\nSHA256: ${sha256}\n`);
  }
  const packages = paragraphs.join('\n');
  await writeFile(join(directory, 'Packages'), packages);
  const sha256 = createHash('sha256').update(packages).digest('hex');
  const date = new Date().toUTCString().replace('GMT', '+0000');
  const release = `Suite: stable\nCodename: test\nDate: ${date}\nSHA256:\n ${sha256} ${Buffer.byteLength(packages)} Packages\n`;
  await writeFile(join(directory, 'Release'), release);
}

/** `final` is where the directory will be. */
async function writeConfiguration(directory: string, final: string): Promise<void> {
  const home = join(directory, 'gpg');
  const apt = join(directory, 'apt');
  await mkdir(home, { mode: 0o700 });
  for (const name of ['sources.list.d', 'apt.conf.d', 'preferences.d', 'trusted.gpg.d', 'auth.conf.d']) {
    await mkdir(join(apt, name), { recursive: true });
  }
  const gpg = (...words: string[]) => run('gpg', ['--homedir', home, '--batch', '--yes', '--quiet', ...words]);
  await gpg('--pinentry-mode', 'loopback', '--passphrase', '', '--quick-gen-key', 'test', 'ed25519', 'sign', 'never');
  await gpg('--output', join(apt, 'test.gpg'), '--export');
  await gpg('--output', join(directory, 'InRelease'), '--clearsign', join(directory, 'Release'));
  await run('gpgconf', ['--homedir', home, '--kill', 'all']).catch(() => {});
  await rm(home, { recursive: true });
  const source = `Types: deb\nURIs: copy:${final}\nSuites: ./\nSigned-By: ${join(final, 'apt/test.gpg')}\n`;
  await writeFile(join(apt, 'sources.list.d/test.sources'), source);
  await writeFile(join(apt, 'apt.conf'), `Dir::Etc::apt.conf "${join(dirname(final), 'none')}";\n`);
}
