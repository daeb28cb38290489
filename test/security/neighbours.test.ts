/** Two sandboxes, and a sandbox and the machine: neither sees, reaches or disturbs the other. */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AttackRig, type Target } from '../support/attack-rig.ts';
import { describeWith, requires } from '../support/requires.ts';

const run = promisify(execFile);

/** Perl, which is everywhere: `ok`, or the error, of connecting to host:port, to a unix path, or to an abstract name (@…). */
const connectProgram = `
use Socket;
for my $where (@ARGV) {
  my ($socket, $address);
  if ($where =~ /^@(.*)/) { socket($socket, AF_UNIX, SOCK_STREAM, 0); $address = pack("Sa*", AF_UNIX, "\\0$1") }
  elsif ($where =~ m{^/}) { socket($socket, AF_UNIX, SOCK_STREAM, 0); $address = pack_sockaddr_un($where) }
  else { my ($host, $port) = $where =~ /(.*):(.*)/; socket($socket, AF_INET, SOCK_STREAM, 0); $address = pack_sockaddr_in($port, inet_aton($host)) }
  local $SIG{ALRM} = sub { die "timeout" };
  alarm 2;
  print "$where=", (connect($socket, $address) ? "ok" : "refused"), "\\n";
}`;

/** Listens at a port and an abstract name, says so, and stays. */
const listenProgram = `
use Socket;
$| = 1;
socket(my $tcp, AF_INET, SOCK_STREAM, 0); setsockopt($tcp, SOL_SOCKET, SO_REUSEADDR, 1);
bind($tcp, pack_sockaddr_in(4711, INADDR_ANY)) or die; listen($tcp, 16);
socket(my $local, AF_UNIX, SOCK_STREAM, 0); bind($local, pack("Sa*", AF_UNIX, "\\0attack")) or die; listen($local, 16);
open(my $mark, ">", "/tmp/listening"); close($mark);
sleep 300;`;

describeWith(
  requires.root,
  requires.cgroups,
  requires.compiler,
)('neighbours', () => {
  let rig: AttackRig;
  let first: Target;
  let second: Target;
  let server: Server;
  let port: number;
  let running: ReturnType<Target['start']>;

  beforeAll(async () => {
    rig = await AttackRig.open();
    first = await rig.sandbox();
    second = await rig.sandbox();
    server = createServer((socket) => socket.destroy());
    server.listen(0, '0.0.0.0');
    await once(server, 'listening');
    port = (server.address() as { port: number }).port;
    running = first.start(['perl', '-e', listenProgram]);
    await first.run('until test -e /tmp/listening; do :; done');
  });

  afterAll(async () => {
    await running?.stop();
    server?.close();
    await rig?.close();
  });

  const connect = (target: Target, ...places: readonly string[]) =>
    target.run(['perl', '-e', connectProgram, ...places]);

  test("a sandbox's listeners are reachable in it and not from its neighbour", async () => {
    const places = ['127.0.0.1:4711', '@attack'];
    expect((await connect(first, ...places)).stdout).toBe('127.0.0.1:4711=ok\n@attack=ok\n');
    expect((await connect(second, ...places)).stdout).toBe('127.0.0.1:4711=refused\n@attack=refused\n');
  });

  test("the machine's listeners are not reachable from inside", async () => {
    const { stdout: control } = await run('perl', ['-e', connectProgram, `127.0.0.1:${port}`, `127.0.0.2:${port}`]);
    expect(control).toBe(`127.0.0.1:${port}=ok\n127.0.0.2:${port}=ok\n`);
    const inside = await connect(
      first,
      `127.0.0.1:${port}`,
      `127.0.0.2:${port}`,
      `10.0.2.2:${port}`,
      `169.254.169.254:80`,
    );
    expect(inside.stdout).not.toContain('=ok');
    expect(inside.stdout.match(/=refused/g)).toHaveLength(4);
  });

  test("the machine's sockets in the file tree and beside it are not reachable from inside", async () => {
    const path = `${rig.directory}/socket`;
    const name = `attack-${process.pid}`;
    const local = createServer((socket) => socket.destroy()).listen(path);
    const abstract = createServer((socket) => socket.destroy()).listen(`\0${name}`);
    await Promise.all([once(local, 'listening'), once(abstract, 'listening')]);
    try {
      const { stdout } = await run('perl', ['-e', connectProgram, path, `@${name}`]);
      expect(stdout).toBe(`${path}=ok\n@${name}=ok\n`);
      expect((await connect(first, path, `@${name}`)).stdout).toBe(`${path}=refused\n@${name}=refused\n`);
    } finally {
      local.close();
      abstract.close();
    }
  });

  test('init cannot be spoken to from inside', async () => {
    const socket = `${first.directory()}/init.sock`;
    expect((await run('perl', ['-e', connectProgram, socket])).stdout).toBe(`${socket}=ok\n`);
    const found = await first.run(
      'cat /proc/net/unix | tail -n +2 | grep -v @attack; find / -xdev -type s 2>/dev/null',
    );
    expect(found.stdout).toBe('');
    expect(
      (await connect(first, socket, '/init.sock', '/run/atoll/init.sock', '/proc/1/cwd/init.sock')).stdout,
    ).not.toContain('=ok');
  });

  test('processes of a neighbour are neither seen nor hit', async () => {
    const seen = (target: Target) => target.run('grep -lz "socket(my" /proc/[0-9]*/cmdline | wc -l');
    expect((await seen(first)).stdout.trim()).not.toBe('0');
    // The search itself has the words in its arguments.
    expect((await second.run('for p in /proc/[0-9]*; do readlink $p/exe; done | grep -c perl')).stdout.trim()).toBe(
      '0',
    );
    await second.run('kill -9 -1');
    expect((await connect(first, '127.0.0.1:4711')).stdout).toBe('127.0.0.1:4711=ok\n');
    const pids = await first.run(['pgrep', '-x', 'perl']);
    await second.run(`kill -9 ${pids.stdout.replaceAll('\n', ' ')} $(seq 2 4000)`);
    expect((await connect(first, '127.0.0.1:4711')).stdout).toBe('127.0.0.1:4711=ok\n');
  });

  test('files of a neighbour are not there, in memory or on disk', async () => {
    const places = ['/dev/shm/mine', '/tmp/mine', '/run/mine', '/workspace/mine', '/usr/mine', '/etc/mine'];
    await first.run(['touch', ...places]);
    expect((await first.run(['ls', ...places])).exitCode).toBe(0);
    expect((await second.run(`ls ${places.join(' ')} 2>/dev/null`)).stdout).toBe('');
  });

  test('shared memory and message queues are for one sandbox', async () => {
    expect(await first.attack('shared', 'make')).toEqual({ shmget: 'ok', mq_open: 'ok' });
    expect(await first.attack('shared', 'find')).toEqual({ shmget: 'ok', mq_open: 'ok' });
    expect(await second.attack('shared', 'find')).toEqual({ shmget: 'ENOENT', mq_open: 'ENOENT' });
    expect(await rig.attackHost('shared', 'find')).toEqual({ shmget: 'ENOENT', mq_open: 'ENOENT' });
  });

  test('a change below /usr is seen by nobody else, the machine least of all', async () => {
    await first.run(
      'echo "#!/bin/sh" > /usr/bin/attack-program && chmod 755 /usr/bin/attack-program && rm /usr/bin/env',
    );
    expect((await first.run(['attack-program'])).exitCode).toBe(0);
    expect((await second.run(['attack-program'])).exitCode).toBe(127);
    expect((await second.run(['env', 'true'])).exitCode).toBe(0);
    await expect(run('attack-program')).rejects.toMatchObject({ code: 'ENOENT' });
    await run('/usr/bin/env', ['true']);
  });

  test('host names are their own', async () => {
    const [one, two, machine] = await Promise.all([first.run(['hostname']), second.run(['hostname']), run('hostname')]);
    expect(new Set([one.stdout, two.stdout, machine.stdout]).size).toBe(3);
  });
});
