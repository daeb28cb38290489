/** The published package: what `npm pack` makes is installed into an empty prefix and used from there. */
import { type ExecFileException, execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { requires, testWith } from '../support/requires.ts';

const root = dirname(dirname(import.meta.dirname));
/** Installing copies a Node of 150 MB, and where npm's cache is empty it is fetched first. */
const installTimeoutMs = 10 * 60_000;
const commandTimeoutMs = 2 * 60_000;

interface Outcome {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

interface PackedFile {
  readonly path: string;
}

let directory: string;
let prefix: string;
let packedPaths: readonly string[];

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'atoll-package-'));
  prefix = join(directory, 'prefix');

  const packed = await succeed('npm', ['pack', '--json', '--pack-destination', directory], { cwd: root });
  const [{ filename, files }] = JSON.parse(packed.stdout) as [{ filename: string; files: readonly PackedFile[] }];
  packedPaths = files.map((file) => file.path);
  const install = ['install', '--prefix', prefix, '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'];
  await succeed('npm', [...install, join(directory, filename)], { cwd: directory });
}, installTimeoutMs);

afterAll(() => {
  rmSync(directory, { recursive: true, force: true });
});

test('the package holds what it needs to run and no sources or tests', () => {
  expect(packedPaths).toEqual(
    expect.arrayContaining([
      'bin/atoll.mjs',
      'dist/cli/main.js',
      'dist/sdk/index.js',
      'native/build.sh',
      'LICENSE',
      'README.md',
    ]),
  );
  const unwanted = /(^(src|test|scripts|bench)\/|\.test\.|atoll-init$|node_modules)/;
  expect(packedPaths.filter((path) => unwanted.test(path))).toEqual([]);
});

testWith(
  requires.linux,
  requires.root,
  requires.cgroups,
  requires.compiler,
)(
  "atoll doctor, started by the machine's own Node, finds the machine well and keeps what was compiled for the next start",
  async () => {
    const outcome = await execute(
      join(prefix, 'node_modules', '.bin', 'atoll'),
      ['--data', join(directory, 'data'), 'doctor', '--json'],
      {
        cwd: directory,
      },
    );

    const report = JSON.parse(outcome.stdout) as { ok: boolean; checks: readonly { ok: boolean; required: boolean }[] };
    expect(report.checks.filter((check) => check.required && !check.ok)).toEqual([]);
    expect(report.checks.length).toBeGreaterThan(0);
    expect(report.ok).toBe(true);
    expect(outcome.exitCode).toBe(0);
    expect(readdirSync(join(directory, 'cache', 'atoll', 'compiled'))).toHaveLength(1);
  },
  { timeout: commandTimeoutMs },
);

test("the client library loads in the machine's own Node", { timeout: commandTimeoutMs }, async () => {
  const script = `import { Sandbox } from 'atoll'; process.stdout.write(typeof Sandbox.create);`;
  const outcome = await succeed('node', ['--input-type=module', '-e', script], { cwd: prefix });
  expect(outcome.stdout).toBe('function');
});

test('the client library brings types that a strict project accepts', { timeout: commandTimeoutMs }, async () => {
  const source = `import { Sandbox } from 'atoll';\nexport const sandbox: Promise<Sandbox> = Sandbox.create({ url: '', apiKey: '' });\n`;
  writeFileSync(
    join(prefix, 'consumer.ts'),
    `${source}// @ts-expect-error\nexport const wrong: number = Sandbox.create;\n`,
  );
  const tsc = join(root, 'node_modules', '.bin', 'tsc');
  const options = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2024', '--lib', 'es2024,esnext,dom'];
  // Reads types of no other package: a browser project has none of Node's.
  const outcome = await execute(tsc, [...options, '--types', '', '--ignoreConfig', 'consumer.ts'], { cwd: prefix });
  expect(outcome.stdout).toBe('');
  expect(outcome.exitCode).toBe(0);
});

async function succeed(program: string, args: readonly string[], options: { cwd: string }): Promise<Outcome> {
  const outcome = await execute(program, args, options);
  if (outcome.exitCode !== 0)
    throw new Error(`${program} ${args.join(' ')} failed:\n${outcome.stderr}${outcome.stdout}`);
  return outcome;
}

function execute(program: string, args: readonly string[], options: { cwd: string }): Promise<Outcome> {
  const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
  const env = machineEnvironment();
  execFile(
    program,
    args,
    { ...options, env, maxBuffer: 64 << 20 },
    (error: ExecFileException | null, stdout, stderr) => {
      if (error === null) resolve({ exitCode: 0, stdout, stderr });
      else if (typeof error.code === 'number') resolve({ exitCode: error.code, stdout, stderr });
      else reject(error);
    },
  );
  return promise;
}

/** As if nobody had started this through `npm test`: the checkout's programs are not on PATH, its settings do not leak. */
function machineEnvironment(): NodeJS.ProcessEnv {
  const path = (process.env['PATH'] ?? '').split(delimiter).filter((entry) => !entry.includes('node_modules'));
  const isOurs = (name: string) =>
    /^(npm_(package|lifecycle|execpath|node_execpath|command)|npm_config_.*prefix|INIT_CWD|NODE_)/i.test(name);
  const kept = Object.entries(process.env).filter(([name]) => !isOurs(name) && !name.startsWith('VITEST'));
  return { ...Object.fromEntries(kept), PATH: path.join(delimiter), XDG_CACHE_HOME: join(directory, 'cache') };
}
