/** A command owns the file tree that init works in: no file there makes init hang, end, or do what it should not. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { AttackRig, type Target } from '../support/attack-rig.ts';
import { describeWith, requires } from '../support/requires.ts';

const traps: readonly (readonly [title: string, make: (path: string) => string])[] = [
  ['a FIFO', (path) => `mkfifo ${path}`],
  ['a link to a FIFO', (path) => `mkfifo /fifo; ln -s /fifo ${path}`],
  ['a directory', (path) => `mkdir ${path}`],
  ['a link to itself', (path) => `ln -s ${path} ${path}`],
  ['a link to an endless device', (path) => `ln -s /dev/zero ${path}`],
  ['a link to the terminal', (path) => `ln -s /dev/ptmx ${path}`],
  ['a link to the memory of init', (path) => `ln -s /proc/1/mem ${path}`],
  ['a link to the memory of its reader', (path) => `ln -s /proc/self/mem ${path}`],
  ['a link to an event stream of the kernel', (path) => `ln -s /proc/kmsg ${path}`],
  ['a huge file without a line end', (path) => `truncate -s 8G ${path}`],
  ['one endless line of names', (path) => `head -c 4M /dev/zero | tr '\\0' ':' > ${path}`],
  ['a file of broken lines', (path) => `head -c 1M /dev/urandom > ${path}`],
  [
    'huge numbers',
    (path) => `echo user:x:4294967296:-1::/: > ${path}; echo user:x:99999999999999999999:0::/: >> ${path}`,
  ],
  ['a socket', (path) => `perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0);bind(S,pack_sockaddr_un("${path}"))'`],
];

describeWith(
  requires.root,
  requires.cgroups,
  requires.compiler,
)('hostile files', () => {
  let rig: AttackRig;
  let target: Target;

  beforeAll(async () => {
    rig = await AttackRig.open();
    target = await rig.sandbox();
    await target.run(
      'cp -a /etc/passwd /etc/passwd.kept; cp -a /etc/group /etc/group.kept; cp -a /bin/bash /bash.kept',
    );
  });

  // Through sh, and as a number: neither needs what the traps replace.
  beforeEach(async () => {
    const restore = `rm -rf /etc/passwd /etc/group /bin/bash /fifo; cp -a /etc/passwd.kept /etc/passwd; cp -a /etc/group.kept /etc/group; cp -a /bash.kept /bin/bash`;
    expect(await target.run(['sh', '-c', restore], { user: '0:0' })).toMatchObject({ exitCode: 0, stderr: '' });
  });

  afterAll(() => rig?.close());

  test('a FIFO does stop a program that opens files as they come', async () => {
    // The control of what follows: the traps are traps.
    await target.run('rm /etc/passwd; mkfifo /etc/passwd');
    expect(await target.run(['cat', '/etc/passwd'], { timeoutMs: 300 })).toMatchObject({ timedOut: true });
    expect(await target.run(['id', 'user'], { timeoutMs: 300, user: '0:0' })).toMatchObject({ timedOut: true });
  });

  for (const [title, make] of traps) {
    test(`${title} as /etc/passwd refuses users by name and nothing else`, async () => {
      expect(await target.run(['id', '-u'], { user: 'user' })).toMatchObject({ stdout: '1000\n' });
      expect((await target.run(['sh', '-c', `rm /etc/passwd; ${make('/etc/passwd')}`])).exitCode).toBe(0);
      await expect(target.run(['true'], { user: 'user' })).rejects.toMatchObject({ code: 'user_not_usable' });
      expect(await target.run(['echo', 'alive'], { user: '1234:1234' })).toMatchObject({ stdout: 'alive\n' });
    });
  }

  for (const [title, make] of traps) {
    test(`${title} as /etc/group leaves a user without further groups`, async () => {
      const groups = () => target.run(['grep', '^Groups:', '/proc/self/status'], { user: 'user' });
      expect((await groups()).stdout).toMatch(/\d/);
      await target.run(['sh', '-c', `rm /etc/group; ${make('/etc/group')}`]);
      expect((await groups()).stdout.trim()).toBe('Groups:');
    });
  }

  for (const [title, make] of traps) {
    test(`${title} as /bin/bash hangs nothing`, async () => {
      await target.run(['sh', '-c', `rm /bin/bash; ${make('/bin/bash')}; chmod 755 /bin/bash`]);
      const outcome = await target
        .run('echo by-shell', { timeoutMs: 5_000 })
        .catch((error: { code: string }) => error.code);
      // Refused, run by sh instead, or told as a program that cannot run; never hanging.
      if (typeof outcome === 'object') expect(outcome).toMatchObject({ timedOut: false });
      expect(await target.run(['echo', 'alive'])).toMatchObject({ stdout: 'alive\n' });
    });
  }

  test('a link to init itself as /bin/bash runs no init inside', async () => {
    const inits = () => target.run(['sh', '-c', 'grep -l "^atoll-init$" /proc/[0-9]*/comm']);
    expect((await inits()).stdout).toBe('/proc/1/comm\n');
    await target.run(['sh', '-c', 'rm /bin/bash; ln -s /proc/self/exe /bin/bash']);
    expect(await target.run('echo by-shell', { timeoutMs: 5_000 })).toMatchObject({ timedOut: false });
    expect((await inits()).stdout).toBe('/proc/1/comm\n');
  });

  const places: readonly (readonly [title: string, make: string, cwd: string])[] = [
    ['not there', 'true', '/not/there'],
    ['a file', 'touch /place', '/place'],
    ['a FIFO', 'mkfifo /place', '/place'],
    ['a link to itself', 'ln -s /place /place', '/place'],
    ['a link into init', 'ln -s /proc/1/cwd /place', '/place'],
    ['init itself', 'true', '/proc/1/root'],
    ['a descriptor of init', 'true', '/proc/1/fd/5'],
    ['longer than a path can be', 'true', `/${'x/'.repeat(3000)}`],
  ];

  for (const [title, make, cwd] of places) {
    test(`a working directory that is ${title} is refused, and nothing runs`, async () => {
      await target.run(`rm -rf /place; ${make}`);
      await expect(target.run(['touch', '/ran'], { cwd })).rejects.toMatchObject({ code: 'cwd_not_usable' });
      expect(await target.run(['test', '-e', '/ran'])).toMatchObject({ exitCode: 1 });
      await target.run(`rm -rf /place; mkdir /place`);
      expect(await target.run(['pwd'], { cwd: '/place' })).toMatchObject({ stdout: '/place\n' });
    });
  }

  test('a working directory is entered with the rights of the user, not of init', async () => {
    await target.run('mkdir -m 700 -p /root/private');
    await expect(target.run(['pwd'], { cwd: '/root/private', user: 'user' })).rejects.toMatchObject({
      code: 'cwd_not_usable',
    });
    expect(await target.run(['pwd'], { cwd: '/root/private' })).toMatchObject({ stdout: '/root/private\n' });
  });

  test('a file tree without /proc, /dev and /etc entries still runs what is there', async () => {
    const bare = await rig.sandbox();
    await bare.run('rm -rf /etc/* /var/* /home /root /tmp 2>/dev/null; true');
    expect(await bare.run(['echo', 'alive'], { user: '0' })).toMatchObject({ stdout: 'alive\n' });
  });

  test('a sandbox whose root was taken apart is deleted like any other', async () => {
    const harness = await rig.node();
    const broken = await rig.sandbox();
    const deep = `perl -e 'chdir "/"; for (1..3000) { mkdir "d" x 200; chdir "d" x 200 or last }'`;
    await broken.run(
      `${deep}; mkdir -p /locked/in; chmod 000 /locked; ln -s / /link; mkfifo /pipe; chmod 000 / ; true`,
    );
    const { sandboxId } = broken.sandbox.mark;
    await harness.node.deleteSandbox({ sandboxId, generation: 1 });
    expect(await harness.node.findSandbox(sandboxId)).toBeUndefined();
  });
});
