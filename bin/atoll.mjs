#!/usr/bin/env node
/**
 * Starts the command line with a Node that can run it, whatever Node started this file (20 or newer).
 *
 * From a checkout it runs src/cli/main.ts as it is; in the published package, where Node does not strip types, the
 * JavaScript built from it. Where this process already is Node 24 or newer it goes on in it; an older one hands over to the
 * Node that the package depends on.
 *
 * What Node compiles is kept in ${XDG_CACHE_HOME:-~/.cache}/atoll/compiled, a place of the user's own, which halves the time of
 * every start. Node compares it with the sources and does without where it cannot be written.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import nodeModule, { createRequire } from 'node:module';
import { constants, homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const oldestMajor = 24;

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const source = join(root, 'src', 'cli', 'main.ts');
const isCheckout = existsSync(source);
const entry = isCheckout ? source : join(root, 'dist', 'cli', 'main.js');

if (Number(process.versions.node.split('.')[0]) >= oldestMajor) {
  keepCompiled();
  // The command line sees the same arguments as if Node had been started on it.
  process.argv[1] = entry;
  await import(pathToFileURL(entry).href);
} else {
  handOver(findPinnedNode());
}

function keepCompiled() {
  const base = process.env['XDG_CACHE_HOME'];
  try {
    // A relative one is to be ignored, says the specification.
    let directory = base?.startsWith('/') ? base : join(homedir(), '.cache');
    // One after another: Node, asked for all of them, tries for ever where the first cannot be made (below /proc).
    for (const name of ['', 'atoll', 'compiled']) {
      directory = join(directory, name);
      if (!existsSync(directory)) mkdirSync(directory, { mode: 0o700 });
    }
    nodeModule.enableCompileCache(directory);
  } catch {
    // Somebody without a home of their own starts as everybody does the first time.
  }
}

/** The Node from node_modules, found from where this file is, so that it does not matter who called. */
function findPinnedNode() {
  const name = `node-${process.platform}-${process.arch}`;
  try {
    return createRequire(import.meta.url).resolve(`${name}/bin/node`);
  } catch {
    const fix = isCheckout ? `node ${join(root, 'scripts', 'setup.mjs')}` : 'npm install --include=optional atoll';
    process.stderr.write(
      `atoll: needs Node ${oldestMajor} or newer; this is Node ${process.versions.node}, and the package ${name} that brings one ` +
        `is not installed.\nTo fix it, run: ${fix}\nor put Node ${oldestMajor} or newer first on PATH.\n`,
    );
    process.exit(1);
  }
}

/** Runs the same command in the other Node and ends as it ends. */
function handOver(node) {
  const child = spawn(node, [...process.execArgv, fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    stdio: 'inherit',
  });

  for (const signal of ['SIGTERM', 'SIGHUP', 'SIGUSR2', 'SIGINT', 'SIGQUIT']) {
    process.on(signal, () => {
      // A key pressed in a terminal reaches every process in its foreground; sending it on would make it two.
      const isFromKeyboard = (signal === 'SIGINT' || signal === 'SIGQUIT') && isInForeground();
      if (!isFromKeyboard) child.kill(signal);
    });
  }
  child.on('error', (error) => {
    process.stderr.write(`atoll: cannot start ${node}: ${error.message}\n`);
    process.exit(1);
  });
  child.on('exit', (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    // Dies of the same signal, so that a shell sees what happened; if it survives that, says it as shells do.
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
    setTimeout(() => process.exit(128 + constants.signals[signal]), 100);
  });
}

function isInForeground() {
  try {
    const stat = readFileSync('/proc/self/stat', 'utf8');
    const [, , group, , , foregroundGroup] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return group === foregroundGroup;
  } catch {
    return false;
  }
}
