/** The system call filter: what is refused, by whatever way it is called, and that the filter is what refuses it. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AttackRig, type Steps, type Target } from '../support/attack-rig.ts';
import { describeWith, requires } from '../support/requires.ts';

const isX86 = process.arch === 'x64';

/** Calls that succeed, or fail by their arguments only, where nothing refuses them. */
const calls = [
  ...['keyctl', 'add_key', 'request_key', 'bpf', 'perf_event_open', 'io_uring_setup', 'userfaultfd', 'fanotify_init'],
  ...['kexec_load', 'init_module', 'finit_module', 'delete_module', 'syslog', 'kcmp', 'personality'],
  ...['clock_settime', 'settimeofday', 'adjtimex', 'clock_adjtime', 'reboot', 'swapon', 'swapoff', 'acct'],
  ...['pivot_root', 'name_to_handle_at'],
  ...(isX86 ? ['iopl', 'ioperm'] : []),
];
/** Of these the program shows that the attack really succeeds without the filter; of the rest that the kernel would be reached. */
const provenByHost = ['keyctl', 'add_key', 'io_uring_setup', 'adjtimex', 'kcmp', 'personality', 'settimeofday'];

const namespaces = ['user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup'];

const mounts: readonly (readonly [title: string, argv: readonly string[]])[] = [
  ['a tmpfs', ['none', '/mnt', 'tmpfs', '0']],
  ['cgroup v2', ['none', '/mnt', 'cgroup2', '0']],
  ['another directory', ['/etc', '/mnt', 'none', '4096']],
  ['an overlay', ['none', '/mnt', 'overlay', '0', 'lowerdir=/etc:/home']],
  ['a new mqueue', ['none', '/mnt', 'mqueue', '0']],
];

describeWith(
  requires.root,
  requires.cgroups,
  requires.compiler,
)('the system call filter', () => {
  let rig: AttackRig;
  let guarded: Target;
  /** Every capability, and still the filter: the filter alone must do. */
  let filterOnly: Target;
  let open: Target;

  beforeAll(async () => {
    rig = await AttackRig.open();
    guarded = await rig.sandbox();
    filterOnly = await rig.sandbox({ openGuards: ['capabilities'] });
    open = await rig.sandbox({ openGuards: ['seccomp', 'capabilities'] });
  });

  afterAll(() => rig?.close());

  test('a command cannot call what touches the machine or makes kernel objects', async () => {
    const refused = all(calls, 'EPERM');
    expect(await guarded.attack('calls', ...calls)).toEqual(refused);
    expect(await filterOnly.attack('calls', ...calls)).toEqual(refused);
    const control = await rig.attackHost('calls', ...calls);
    expect(Object.entries(control).filter(([, said]) => said === 'EPERM')).toEqual([]);
    expect(control).toMatchObject(all(provenByHost, 'ok'));
  });

  for (const way of ['unshare', 'clone', 'setns']) {
    test(`a command cannot enter or make a namespace by ${way}`, async () => {
      expect(await guarded.attack('namespaces', way)).toEqual(all(namespaces, 'EPERM'));
      expect(await filterOnly.attack('namespaces', way)).toEqual(all(namespaces, 'EPERM'));
      // Nobody can enter the user namespace he is in.
      const user = way === 'setns' ? 'EINVAL' : 'ok';
      expect(await open.attack('namespaces', way)).toEqual({ ...all(namespaces, 'ok'), user });
    });
  }

  test('clone3 is not there, so that libc takes clone', async () => {
    expect(await guarded.attack('namespaces', 'clone3')).toEqual(all(namespaces, 'ENOSYS'));
    expect(await filterOnly.attack('namespaces', 'clone3')).toEqual(all(namespaces, 'ENOSYS'));
    expect(await open.attack('namespaces', 'clone3')).toEqual(all(namespaces, 'ok'));
  });

  for (const [title, argv] of mounts) {
    test(`a command cannot mount ${title}`, async () => {
      expect(await guarded.attack('mount', ...argv)).toEqual({ mount: 'EPERM' });
      expect(await filterOnly.attack('mount', ...argv)).toEqual({ mount: 'EPERM' });
      expect(await open.attack('mount', ...argv)).toEqual({ mount: 'ok' });
      expect(await open.attack('umount', '/mnt')).toEqual({ '/mnt': 'ok' });
    });
  }

  test('a command cannot mount through the newer calls', async () => {
    const steps = ['fsopen', 'fsconfig', 'fsmount', 'move_mount', 'open_tree', 'mount_setattr', 'fspick'];
    expect(await guarded.attack('new-mount', 'tmpfs', '/mnt')).toEqual(all(steps, 'EPERM'));
    expect(await filterOnly.attack('new-mount', 'tmpfs', '/mnt')).toEqual(all(steps, 'EPERM'));
    expect(await open.attack('new-mount', 'tmpfs', '/mnt')).toEqual(all(steps, 'ok'));
  });

  test('a command cannot take a mount away', async () => {
    const places = ['/dev/shm', '/run/atoll'];
    expect(await guarded.attack('umount', ...places)).toEqual(all(places, 'EPERM'));
    expect(await filterOnly.attack('umount', ...places)).toEqual(all(places, 'EPERM'));
    const victim = await rig.sandbox({ openGuards: ['seccomp', 'capabilities'] });
    expect(await victim.attack('umount', '/dev/shm')).toEqual({ '/dev/shm': 'ok' });
  });

  test('a command cannot put words into the input of a terminal', async () => {
    const steps = ['TIOCSTI', 'wide TIOCSTI', 'TIOCLINUX'];
    expect(await guarded.attack('inject')).toEqual(all(steps, 'EPERM'));
    expect(await filterOnly.attack('inject')).toEqual(all(steps, 'EPERM'));
    expect(await rig.attackHost('inject')).toMatchObject({ TIOCSTI: 'ok', 'wide TIOCSTI': 'ok' });
  });

  test('a command cannot open sockets of families it has no use for', async () => {
    // Virtual machine sockets reach the hypervisor; 38 is the kernel's cryptography.
    expect(await guarded.attack('sockets', '40', '38', '1', '2', '10')).toEqual({
      ...all(['40', '38'], 'EAFNOSUPPORT'),
      ...all(['1', '2', '10'], 'ok'),
    });
    expect(await open.attack('sockets', '40')).toEqual({ 40: 'ok' });
  });

  const testX86 = isX86 ? test : test.skip;

  testX86('a command cannot use the system call numbers of 32-bit programs', async () => {
    expect(await guarded.run(['/attack', 'i386'])).toMatchObject({ stdout: '', signal: 'SIGSYS' });
    expect(await open.attack('i386')).toEqual({ i386: 'ok' });
  });

  testX86('a command cannot use the system call numbers of x32', async () => {
    expect(await guarded.attack('calls', 'x32')).toEqual({ x32: 'EPERM' });
    // Kernels are built without it today; what counts is that they were asked.
    expect(['ok', 'ENOSYS']).toContain((await open.attack('calls', 'x32'))['x32']);
  });
});

function all(names: readonly string[], said: string): Steps {
  return Object.fromEntries(names.map((name) => [name, said]));
}
