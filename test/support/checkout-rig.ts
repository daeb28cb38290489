/** A checkout in a temporary directory, a sandbox for it, and git on both sides, as the tests of sync use them. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import {
  type Checkout,
  openCheckout,
  type PullOptions,
  type PushOptions,
  pull,
  push,
} from '../../src/checkout/sync/index.ts';
import type { Sandbox } from '../../src/sdk/index.ts';
import type { Platform } from './platform.ts';

const run = promisify(execFile);
const quiet = { GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_NOSYSTEM: '1' };
const author = ['-c', 'user.name=Ann', '-c', 'user.email=ann@example.com', '-c', 'commit.gpgsign=false'];

export class CheckoutRig implements AsyncDisposable {
  readonly top: string;
  readonly root: string;
  readonly sandbox: Sandbox;
  checkout!: Checkout;

  private constructor(top: string, sandbox: Sandbox) {
    this.top = top;
    this.root = join(top, 'work');
    this.sandbox = sandbox;
  }

  static async make(platform: Platform, options: { readonly kind?: 'git' | 'plain' } = {}): Promise<CheckoutRig> {
    const top = await mkdtemp(join(tmpdir(), 'atoll-checkout-'));
    const rig = new CheckoutRig(top, await platform.client.sandboxes.create());
    await mkdir(rig.root);
    if (options.kind !== 'plain') await rig.git('init', '-q', '-b', 'main');
    await rig.open();
    return rig;
  }

  /** As a new run of the command line would. */
  async open(cwd = this.root, env: Record<string, string> = {}): Promise<Checkout> {
    const all = { PATH: process.env['PATH'], HOME: this.top, ...quiet, ...env };
    this.checkout = await openCheckout(cwd, { env: all, stateDirectory: join(this.top, 'state') });
    return this.checkout;
  }

  push(options: PushOptions = {}) {
    return push(this.checkout, this.sandbox, options);
  }

  pull(options: PullOptions = {}) {
    return pull(this.checkout, this.sandbox, options);
  }

  async git(...words: readonly string[]): Promise<string> {
    const { stdout } = await run('git', [...author, ...words], {
      cwd: this.root,
      env: { ...process.env, ...quiet },
      maxBuffer: 2 ** 28,
    });
    return stdout.replace(/\n$/, '');
  }

  async write(files: Readonly<Record<string, string | Uint8Array>>): Promise<void> {
    for (const [name, content] of Object.entries(files)) {
      await mkdir(dirname(join(this.root, name)), { recursive: true });
      await writeFile(join(this.root, name), content);
    }
  }

  async commit(message: string): Promise<string> {
    await this.git('add', '-A');
    await this.git('commit', '-q', '--allow-empty', '-m', message);
    return await this.git('rev-parse', 'HEAD');
  }

  read(name: string): Promise<string> {
    return readFile(join(this.root, name), 'utf8');
  }

  /** In the checkout inside. Fails when the command does. */
  async inside(command: string): Promise<string> {
    const result = await this.sandbox.exec(command, { cwd: '/workspace' });
    if (result.exitCode !== 0) throw new Error(`${command}: ${result.stderr}`);
    return result.stdout.replace(/\n$/, '');
  }

  /** Everything that must not change here by a push: index, refs, stash, status. */
  async localState(): Promise<readonly string[]> {
    const index = (await readFile(join(this.root, '.git/index')).catch(() => Buffer.alloc(0))).toString('base64');
    return [index, await this.git('for-each-ref'), await readFile(join(this.root, '.git/HEAD'), 'utf8')];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.sandbox.delete({ force: true }).catch(() => {});
    await rm(this.top, { recursive: true, force: true });
  }
}
