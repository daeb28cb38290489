#!/usr/bin/env node
/**
 * Brings a checkout into a state in which it runs: installs the npm packages, builds the native init, as root the Debian
 * packages that sandboxes' networks and checkpoints need and, with `--test`, those that tests use. Does only what is missing, says in short lines what it does, and is silent otherwise.
 *
 *   node scripts/setup.mjs             what `npm start` needs
 *   node scripts/setup.mjs --test      what `npm test` needs besides
 *   node scripts/setup.mjs --native    only the native init
 *
 * Plain JavaScript without dependencies: it is started by whatever Node the machine has (20 or newer), before anything else
 * is there. "Missing" is decided by content, never by time stamps, which mean nothing after a git checkout.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const lockFile = join(root, 'package-lock.json');
const packagesStamp = join(root, 'node_modules', '.atoll-setup');
const initBinary = join(root, 'native', 'atoll-init');
const initStamp = join(root, 'build', 'atoll-init.stamp');
const setupLock = join(root, 'build', 'setup.lock');

/** How long one run waits for another to finish. */
const lockWaitMs = 15 * 60_000;
const lockPollMs = 200;
/** Breaking a stale lock takes microseconds; who holds the right to break for longer than this has died. */
const breakerLimitMs = 10_000;

/** Debian packages that sandboxes need for a network and for cheap checkpoints, and workspaces at all; without them they do without. Installed as root only. */
const rootPackages = [
  { name: 'nftables', program: 'nft', why: 'sandboxes with a network are kept to it by nftables' },
  { name: 'iproute2', program: 'ip', why: 'links of sandboxes to their router are made with it' },
  {
    name: 'btrfs-progs',
    program: 'mkfs.btrfs',
    why: 'checkpoints of running sandboxes are snapshots in a pool made with mkfs.btrfs',
  },
  { name: 'git', program: 'git', why: 'versions of workspaces are kept with it' },
];

/** Debian packages that tests use and a small machine may lack. */
const testPackages = [
  ...rootPackages,
  { name: 'sudo', program: 'sudo', why: 'tests run sudo inside a sandbox, which sees this /usr' },
  { name: 'tmux', program: 'tmux', why: 'tests look at the screens of full-screen programs with it' },
  { name: 'vim', program: 'vim', why: 'a full-screen program that tests run in a terminal' },
  { name: 'less', program: 'less', why: 'a full-screen program that tests run in a terminal' },
  { name: 'procps', program: 'top', why: 'a full-screen program that tests run in a terminal' },
  { name: 'umoci', program: 'umoci', why: 'tests compare the trees of images with those that it unpacks' },
  { name: 'skopeo', program: 'skopeo', why: 'tests take images in every form that it writes' },
  { name: 'openssl', program: 'openssl', why: 'tests serve TLS with certificates that it makes' },
  { name: 'gnupg', program: 'gpg', why: 'tests sign a repository of packages with it' },
  { name: 'curl', program: 'curl', why: 'tests build the template base from packages that are installed here' },
  { name: 'python3', program: 'python3', why: 'tests build the template base from packages that are installed here' },
  { name: 'xz-utils', program: 'xz', why: 'tests build the template base from packages that are installed here' },
  {
    name: 'ca-certificates',
    program: 'update-ca-certificates',
    why: 'tests build the template base from packages that are installed here',
  },
  { name: 'docker-registry', program: 'docker-registry', why: 'tests pull images from a registry on loopback' },
];

/** A problem the user can solve; printed without a stack. */
class SetupError extends Error {}

try {
  main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  process.stderr.write(`setup: ${error.message}\n`);
  process.exitCode = 1;
}

function main(flags) {
  const unknown = flags.find((flag) => flag !== '--test' && flag !== '--native');
  if (unknown !== undefined) throw new SetupError(`unknown option ${unknown}; known are --test and --native`);

  const steps = [{ isDone: isInitBuilt, run: buildInit }];
  if (!flags.includes('--native')) steps.unshift({ isDone: arePackagesInstalled, run: installPackages });
  const isRoot = process.geteuid?.() === 0;
  const packages = flags.includes('--test') ? testPackages : isRoot && !flags.includes('--native') ? rootPackages : [];
  steps.push({ isDone: () => missingOf(packages).length === 0, run: () => installDebianPackages(missingOf(packages)) });

  if (steps.every((step) => step.isDone())) return;
  withLock(() => {
    // Looked at again: another run may have done it while this one waited.
    for (const step of steps) if (!step.isDone()) step.run();
  });
}

// ---- npm packages

function arePackagesInstalled() {
  if (!existsSync(join(root, 'node_modules'))) return false;
  if (!existsSync(lockFile)) return readText(packagesStamp) === hashOf([join(root, 'package.json')]);
  const hash = hashOf([lockFile]);
  if (readText(packagesStamp) === hash) return true;
  if (!isTreeOfLock()) return false;
  // Somebody ran npm by hand; remember the answer.
  writeFileSync(packagesStamp, hash);
  return true;
}

/** Compares the lock with npm's own record of what it installed. Optional packages of other platforms may be absent. */
function isTreeOfLock() {
  const record = readText(join(root, 'node_modules', '.package-lock.json'));
  if (record === undefined) return false;
  const installed = JSON.parse(record).packages;
  const wanted = JSON.parse(readFileSync(lockFile, 'utf8')).packages;
  const isPresent = ([path, entry]) =>
    path === '' || entry.optional === true || installed[path]?.version === entry.version;
  return (
    Object.entries(wanted).every(isPresent) &&
    Object.entries(installed).every(([path, entry]) => wanted[path]?.version === entry.version)
  );
}

function installPackages() {
  const command = existsSync(lockFile) ? 'ci' : 'install';
  say(`installing npm packages (npm ${command})`);
  // Dev packages too, whatever NODE_ENV says: the checkout needs its compiler and tests.
  run('npm', [command, '--include=dev', '--include=optional', '--no-audit', '--no-fund', '--loglevel=error'], {
    missing: 'npm is not on PATH. It comes with Node: install Node 20 or newer (on Debian: apt-get install nodejs npm)',
    failed: `npm ${command} failed; what it says is above`,
  });
  const lock = existsSync(lockFile) ? lockFile : join(root, 'package.json');
  writeFileSync(packagesStamp, hashOf([lock]));
  if (!existsSync(join(root, 'node_modules', '.bin', 'node'))) {
    say(`npm installed no Node for ${process.platform}-${process.arch}: a Node 24 or newer must be first on PATH`);
  }
}

// ---- the native init

function initSources() {
  const directory = join(root, 'native');
  const names = readdirSync(directory, { recursive: true }).filter(
    (name) => /\.[ch]$/.test(name) || name === 'build.sh',
  );
  return names.sort().map((name) => join(directory, name));
}

function isInitBuilt() {
  return existsSync(initBinary) && readText(initStamp) === hashOf(initSources());
}

function buildInit() {
  say('building native/atoll-init');
  if (!hasProgram(process.env.CC ?? 'cc')) {
    throw new SetupError('there is no C compiler. To fix it on Debian: apt-get install gcc libc6-dev');
  }
  const hash = hashOf(initSources());
  run('sh', [join(root, 'native', 'build.sh')], {
    missing: 'there is no sh',
    failed: 'native/build.sh failed; what it says is above. On Debian it needs: apt-get install gcc libc6-dev',
  });
  if (!existsSync(initBinary)) throw new SetupError('native/build.sh ended well but left no native/atoll-init');
  mkdirSync(dirname(initStamp), { recursive: true });
  writeFileSync(initStamp, hash);
}

// ---- Debian packages

function missingOf(packages) {
  return packages.filter((entry) => !hasProgram(entry.program));
}

/** Never fails the set-up: a test that needs an absent program says so itself, and so does a sandbox. */
function installDebianPackages(missing) {
  const names = missing.map((entry) => entry.name);
  for (const entry of missing) say(`missing: ${entry.name} (${entry.why})`);
  if (process.geteuid?.() !== 0)
    return say(`not installed, because this is not root: apt-get install ${names.join(' ')}`);
  if (!hasProgram('apt-get'))
    return say(`not installed, because there is no apt-get: install ${names.join(' ')} yourself`);

  say(`installing Debian packages: ${names.join(' ')}`);
  const install = () => runApt(['install', '-y', '--no-install-recommends', ...names]);
  // The lists may be absent or old; fetching them takes long, so only when it does not work without.
  if (!install() && !(runApt(['update']) && install()))
    say(`apt-get could not install ${names.join(' ')}; going on without`);
}

function runApt(args) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  return spawnSync('apt-get', ['-qq', ...args], { stdio: ['ignore', 'ignore', 'inherit'], env }).status === 0;
}

// ---- one run at a time

/**
 * Runs the task while holding build/setup.lock, a directory with the holder inside. It is made complete under another name
 * and then renamed into place, so a lock without a holder never exists; renaming onto a held one fails.
 */
function withLock(task) {
  mkdirSync(dirname(setupLock), { recursive: true });
  const mine = `${setupLock}.${process.pid}`;
  const deadline = Date.now() + lockWaitMs;
  let isTold = false;
  rmSync(mine, { recursive: true, force: true });
  mkdirSync(mine);
  writeFileSync(join(mine, 'pid'), identityOf(process.pid));
  try {
    while (!tryRename(mine, setupLock)) {
      const holder = readText(join(setupLock, 'pid'));
      if (holder !== undefined && !isAlive(holder)) breakLock();
      else {
        if (!isTold) say('waiting for another set-up to finish');
        isTold = true;
        if (Date.now() > deadline)
          throw new SetupError(`another set-up still runs; its process id is in ${setupLock}/pid`);
        sleep(lockPollMs);
      }
    }
  } finally {
    rmSync(mine, { recursive: true, force: true });
  }
  try {
    task();
  } finally {
    dropLock();
  }
}

/** Under another name first: a lock that is emptied in its place is free for others before it is gone, and theirs would go with it. */
function dropLock() {
  const gone = `${setupLock}.gone.${process.pid}`;
  if (existsSync(setupLock)) renameSync(setupLock, gone);
  rmSync(gone, { recursive: true, force: true });
}

/**
 * Removes the lock of a run that died. One at a time, and looked at again inside: otherwise the second of two that saw the
 * dead holder would remove the lock the first has just taken.
 */
function breakLock() {
  const breaker = `${setupLock}.breaker`;
  try {
    mkdirSync(breaker);
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
    const sinceMs = statSync(breaker, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
    if (Date.now() - sinceMs > breakerLimitMs) rmSync(breaker, { recursive: true, force: true });
    return sleep(lockPollMs);
  }
  try {
    const holder = readText(join(setupLock, 'pid'));
    if (holder !== undefined && !isAlive(holder)) dropLock();
  } finally {
    rmSync(breaker, { recursive: true, force: true });
  }
}

/** Process ids are used again, so the start time goes with them. */
function identityOf(pid) {
  const stat = readText(`/proc/${pid}/stat`);
  return `${pid} ${stat?.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '?'}`;
}

function isAlive(identity) {
  const pid = Number(identity.split(' ')[0]);
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (error.code === 'ESRCH') return false;
  }
  return identityOf(pid) === identity;
}

function tryRename(from, to) {
  try {
    renameSync(from, to);
    return true;
  } catch (error) {
    if (error.code === 'ENOTEMPTY' || error.code === 'EEXIST') return false;
    throw error;
  }
}

function sleep(ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

// ---- small parts

function run(program, args, { missing, failed }) {
  const result = spawnSync(program, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
  if (result.error?.code === 'ENOENT') throw new SetupError(missing);
  if (result.error) throw result.error;
  if (result.status !== 0) throw new SetupError(failed);
}

function hasProgram(name) {
  const candidates = name.includes('/')
    ? [name]
    : (process.env.PATH ?? '').split(':').map((directory) => join(directory || '.', name));
  return candidates.some((path) => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

function hashOf(paths) {
  const hash = createHash('sha256');
  for (const path of paths)
    hash
      .update(`${path.slice(root.length)}\0`)
      .update(readFileSync(path))
      .update('\0');
  return hash.digest('hex');
}

function readText(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

function say(text) {
  process.stdout.write(`setup: ${text}\n`);
}
