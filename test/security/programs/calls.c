/* System calls a sandbox has no business with. Every one is called with arguments that change nothing on the machine if it succeeds. */
#include "attack.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>

#define NOTHING "/nothing/here"
#define PROCESS_KEYRING (-2)

static long call(const char *name)
{
	static char buffer[4096];
	struct timex times = { .modes = 0 };
	if (strcmp(name, "keyctl") == 0)
		return syscall(SYS_keyctl, 0, PROCESS_KEYRING, 1);
	if (strcmp(name, "add_key") == 0)
		return syscall(SYS_add_key, "user", "attack", "x", 1, PROCESS_KEYRING);
	if (strcmp(name, "request_key") == 0)
		return syscall(SYS_request_key, "user", "attack", NULL, 0);
	if (strcmp(name, "bpf") == 0) {
		union bpf_attr attr = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1 };
		return syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
	}
	if (strcmp(name, "perf_event_open") == 0) {
		struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr), .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1 };
		return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	}
	if (strcmp(name, "io_uring_setup") == 0) {
		memset(buffer, 0, sizeof(buffer));
		return syscall(425, 1, buffer);
	}
	if (strcmp(name, "userfaultfd") == 0)
		return syscall(SYS_userfaultfd, 1);
	if (strcmp(name, "kexec_load") == 0)
		return syscall(SYS_kexec_load, 0, 0, NULL, 0);
	if (strcmp(name, "init_module") == 0)
		return syscall(SYS_init_module, NULL, 0, "");
	if (strcmp(name, "finit_module") == 0)
		return syscall(SYS_finit_module, -1, "", 0);
	if (strcmp(name, "delete_module") == 0)
		return syscall(SYS_delete_module, "attack", O_NONBLOCK);
	if (strcmp(name, "clock_settime") == 0) {
		struct timespec time = { 0 };
		return syscall(SYS_clock_settime, 99, &time);
	}
	if (strcmp(name, "settimeofday") == 0)
		return syscall(SYS_settimeofday, NULL, NULL);
	if (strcmp(name, "adjtimex") == 0)
		return syscall(SYS_adjtimex, &times);
	if (strcmp(name, "clock_adjtime") == 0)
		return syscall(SYS_clock_adjtime, CLOCK_REALTIME, &times);
	if (strcmp(name, "reboot") == 0)
		return syscall(SYS_reboot, 0, 0, 0, NULL);
	if (strcmp(name, "swapon") == 0)
		return syscall(SYS_swapon, NOTHING, 0);
	if (strcmp(name, "swapoff") == 0)
		return syscall(SYS_swapoff, NOTHING);
	if (strcmp(name, "acct") == 0)
		return syscall(SYS_acct, NOTHING);
	if (strcmp(name, "fanotify_init") == 0)
		return syscall(SYS_fanotify_init, 0x200, O_RDONLY);
	if (strcmp(name, "syslog") == 0)
		return syscall(SYS_syslog, 3, buffer, (int)sizeof(buffer));
	if (strcmp(name, "kcmp") == 0)
		return syscall(SYS_kcmp, getpid(), getpid(), 1, 0, 0);
	if (strcmp(name, "pivot_root") == 0)
		return syscall(SYS_pivot_root, NOTHING, NOTHING);
	if (strcmp(name, "personality") == 0)
		return syscall(SYS_personality, 0x0400000);
	if (strcmp(name, "name_to_handle_at") == 0)
		return syscall(SYS_name_to_handle_at, AT_FDCWD, NOTHING, buffer, buffer, 0);
#ifdef __x86_64__
	if (strcmp(name, "iopl") == 0)
		return syscall(SYS_iopl, 3);
	if (strcmp(name, "ioperm") == 0)
		return syscall(SYS_ioperm, 0x80, 1, 1);
	if (strcmp(name, "x32") == 0)
		return syscall(0x40000000 + SYS_getpid);
#endif
	fprintf(stderr, "no such call: %s\n", name);
	exit(2);
}

static void calls(int count, char **names)
{
	for (int i = 0; i < count; i++)
		said(names[i], call(names[i]));
}

/* sockets FAMILY… */
static void sockets(int count, char **families)
{
	for (int i = 0; i < count; i++)
		said(families[i], socket(atoi(families[i]), strcmp(families[i], "38") == 0 ? SOCK_SEQPACKET : SOCK_STREAM, 0));
}

static const struct { const char *name; unsigned long flag; } namespaces[] = {
	{ "user", 0x10000000 }, { "mnt", 0x00020000 }, { "pid", 0x20000000 }, { "net", 0x40000000 }, { "ipc", 0x08000000 },
	{ "uts", 0x04000000 }, { "cgroup", 0x02000000 },
};

static long in_child(long (*step)(unsigned long), unsigned long flag)
{
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(step(flag) < 0 ? errno : 0);
	waitpid(child, &status, 0);
	errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
	return errno == 0 ? 0 : -1;
}

static long by_unshare(unsigned long flag)
{
	return syscall(SYS_unshare, flag);
}

static long by_clone(unsigned long flag)
{
	long pid = syscall(SYS_clone, flag | SIGCHLD, NULL, NULL, NULL, 0);
	if (pid == 0)
		_exit(0);
	if (pid > 0)
		waitpid((pid_t)pid, NULL, 0);
	return pid;
}

static long by_clone3(unsigned long flag)
{
	struct { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; } arguments = { .flags = flag, .exit_signal = SIGCHLD };
	long pid = syscall(435, &arguments, sizeof(arguments));
	if (pid == 0)
		_exit(0);
	if (pid > 0)
		waitpid((pid_t)pid, NULL, 0);
	return pid;
}

static long by_setns(unsigned long flag)
{
	char path[64];
	for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++)
		if (namespaces[i].flag == flag)
			snprintf(path, sizeof(path), "/proc/self/ns/%s", namespaces[i].name);
	int file = open(path, O_RDONLY);
	return file < 0 ? -1 : syscall(SYS_setns, file, 0);
}

/* namespaces unshare|clone|clone3|setns */
static void make_namespaces(int count, char **arguments)
{
	const char *way = count > 0 ? arguments[0] : "";
	long (*step)(unsigned long) = strcmp(way, "clone") == 0 ? by_clone : strcmp(way, "clone3") == 0 ? by_clone3 : strcmp(way, "setns") == 0 ? by_setns : by_unshare;
	for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++)
		said(namespaces[i].name, in_child(step, namespaces[i].flag));
}

/* mount SOURCE TARGET TYPE FLAGS [DATA] */
static void mount_old(int count, char **arguments)
{
	if (count < 4)
		exit(2);
	said("mount", syscall(SYS_mount, arguments[0], arguments[1], arguments[2], strtoul(arguments[3], NULL, 0), count > 4 ? arguments[4] : NULL));
}

static void unmount(int count, char **arguments)
{
	for (int i = 0; i < count; i++)
		said(arguments[i], syscall(SYS_umount2, arguments[i], MNT_DETACH));
}

/* new-mount TYPE TARGET: the same through the newer calls, each step said. */
static void mount_new(int count, char **arguments)
{
	if (count < 2)
		exit(2);
	long context = syscall(430, arguments[0], 0);
	said("fsopen", context);
	said("fsconfig", syscall(431, context, 6, NULL, NULL, 0));
	long made = syscall(432, context, 0, 0);
	said("fsmount", made);
	said("move_mount", syscall(429, made, "", AT_FDCWD, arguments[1], 4));
	said("open_tree", syscall(428, AT_FDCWD, "/etc", 1));
	uint64_t attributes[4] = { 0 };
	said("mount_setattr", syscall(442, AT_FDCWD, arguments[1], 0, attributes, sizeof(attributes)));
	said("fspick", syscall(433, AT_FDCWD, arguments[1], 0));
}

/* A terminal's owner makes another program read what nobody typed. */
static void inject(int count, char **arguments)
{
	(void)count, (void)arguments;
	int terminal = posix_openpt(O_RDWR | O_NOCTTY);
	if (terminal < 0 || grantpt(terminal) < 0 || unlockpt(terminal) < 0)
		exit(2);
	setsid();
	int other = open(ptsname(terminal), O_RDWR);
	if (other < 0 || ioctl(other, TIOCSCTTY, 0) < 0)
		exit(2);
	said("TIOCSTI", ioctl(other, TIOCSTI, "x"));
	/* The kernel looks at 32 bits of the request only. */
	said("wide TIOCSTI", syscall(SYS_ioctl, other, 0xffffffff00000000ul | TIOCSTI, "x"));
	said("TIOCLINUX", ioctl(other, TIOCLINUX, "\3"));
}

/* A system call by the numbers of 32-bit programs, 20 being getpid. */
static void call_i386(int count, char **arguments)
{
	(void)count, (void)arguments;
#ifdef __x86_64__
	long result = 20;
	__asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
	printf("i386=%s\n", result == getpid() ? "ok" : "wrong");
#endif
}

const struct attack call_attacks[] = {
	{ "calls", calls }, { "sockets", sockets }, { "namespaces", make_namespaces }, { "mount", mount_old }, { "umount", unmount },
	{ "new-mount", mount_new }, { "inject", inject }, { "i386", call_i386 }, { NULL, NULL },
};
