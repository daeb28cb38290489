/*
 * What init does between its birth and its first command: it leaves the host's namespaces and builds the file tree
 * that commands see.
 *
 *   /          overlay (/usr a second one where the template has it), nodev
 *   /proc      of the sandbox's own pid namespace, with masks; /proc/sys read-only
 *   /dev       a small tmpfs with null zero full random urandom tty, pts (own instance, 256 terminals), shm
 *   /run       a small tmpfs; /run/atoll is DIRECTORY/shared, read-only
 *   /sys       not mounted: it describes the machine, and nothing a command needs is only there
 *
 * Always true: every path below is resolved after pivot_root, inside the new root, so that a symbolic link in a
 * template leads nowhere else; and /proc is mounted while the host's is still in the namespace, as the kernel demands.
 */
#include "inside.h"

#include "kernel.h"
#include "overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>

static const char *const devices[] = { "null", "zero", "full", "random", "urandom", "tty" };
#define DEVICES (sizeof(devices) / sizeof(devices[0]))

static const char *const masked_files[] = {
	"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/latency_stats",
	"/proc/kallsyms", "/proc/kmsg", "/proc/sysrq-trigger", "/proc/interrupts", "/proc/softirqs", "/proc/modules",
	/* These would tell the host's names of the cgroups that init itself is in. */
	"/proc/1/cgroup",
};
static const char *const masked_directories[] = {
	"/proc/acpi", "/proc/asound", "/proc/bus", "/proc/driver", "/proc/fs", "/proc/irq", "/proc/scsi", "/proc/tty/driver",
	"/proc/1/task",
};

const char *inside_become_root(void)
{
	/* Raw calls: each thread has its own credentials, and libc's wrappers would signal the other thread. */
	if (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
		return "become root inside";
	uid_t real, effective, saved;
	if (getresuid(&real, &effective, &saved) < 0)
		return "become root inside";
	if (real != 0 || effective != 0 || saved != 0) {
		errno = EPERM;
		return "become root inside";
	}
	return NULL;
}

const char *inside_leave_host(const char *hostname)
{
	if (unshare((int)(NEW_NET | NEW_IPC | NEW_UTS)) < 0)
		return "network, ipc and uts namespaces";
	if (sethostname(hostname, strlen(hostname)) < 0 || setdomainname("", 0) < 0)
		return "host name";
	struct ifreq loopback = { .ifr_name = "lo" };
	int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (probe < 0)
		return "loopback interface";
	loopback.ifr_flags = IFF_UP | IFF_RUNNING;
	int result = ioctl(probe, SIOCSIFFLAGS, &loopback);
	close(probe);
	return result < 0 ? "loopback interface" : NULL;
}

static int ensure_directory(const char *path, mode_t mode)
{
	return mkdir(path, mode) < 0 && errno != EEXIST ? -1 : 0;
}

static int ensure_file(const char *path)
{
	int file = open(path, O_CREAT | O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
	if (file < 0)
		return -1;
	return close(file);
}

static const char *mount_devices(const int *trees, int *terminals)
{
	static const char *const links[][2] = {
		{ "pts/ptmx", "/dev/ptmx" }, { "/proc/self/fd", "/dev/fd" }, { "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" }, { "/proc/self/fd/2", "/dev/stderr" },
	};
	char path[32] = "/dev/";
	if (ensure_directory("/dev", 0755) < 0 || mount("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=1m,nr_inodes=1024") < 0)
		return "/dev";
	for (size_t i = 0; i < DEVICES; i++) {
		strcpy(path + 5, devices[i]);
		if (ensure_file(path) < 0 || kernel_move_mount(trees[i], "", AT_FDCWD, path, MOVE_MOUNT_FROM_EMPTY) < 0)
			return "devices in /dev";
		close(trees[i]);
	}
	if (mkdir("/dev/pts", 0755) < 0 ||
	    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5,max=256") < 0)
		return "/dev/pts";
	*terminals = open("/dev/pts", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	if (*terminals < 0)
		return "/dev/pts";
	if (mkdir("/dev/shm", 01777) < 0 || mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") < 0)
		return "/dev/shm";
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (symlink(links[i][0], links[i][1]) < 0)
			return "links in /dev";
	return NULL;
}

static const char *mask(void)
{
	for (size_t i = 0; i < sizeof(masked_files) / sizeof(masked_files[0]); i++)
		if (mount("/dev/null", masked_files[i], NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
			return "mask of a file in /proc";
	for (size_t i = 0; i < sizeof(masked_directories) / sizeof(masked_directories[0]); i++)
		if (mount("none", masked_directories[i], "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0555,size=4k,nr_inodes=2") < 0 &&
		    errno != ENOENT)
			return "mask of a directory in /proc";
	if (mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL) < 0 ||
	    mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return "read-only /proc/sys";
	return NULL;
}

static const char *mount_proc(void)
{
	if (ensure_directory("/proc", 0555) < 0 || mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return "/proc";
	return NULL;
}

static const char *mount_run(int shared)
{
	if (ensure_directory("/run", 0755) < 0 || mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64m") < 0)
		return "/run";
	if (mkdir("/run/atoll", 0755) < 0 || kernel_move_mount(shared, "", AT_FDCWD, "/run/atoll", MOVE_MOUNT_FROM_EMPTY) < 0)
		return "/run/atoll";
	close(shared);
	/* /run/lock and /run/user are where Debian's programs expect them. */
	if (mkdir("/run/lock", 01777) < 0 || chmod("/run/lock", 01777) < 0)
		return "/run/lock";
	if (mkdir("/tmp", 01777) == 0)
		return chmod("/tmp", 01777) < 0 ? "/tmp" : NULL;
	return errno == EEXIST ? NULL : "/tmp";
}

const char *inside_mount(bool masks, int *terminals, int *own)
{
	int trees[DEVICES], shared, old;
	char path[32] = "/dev/";
	const char *failed;
	umask(0);
	if (unshare(CLONE_NEWNS) < 0)
		return "mount namespace";
	for (size_t i = 0; i < DEVICES; i++) {
		strcpy(path + 5, devices[i]);
		trees[i] = kernel_open_tree(AT_FDCWD, path, CLONE_TREE);
		if (trees[i] < 0)
			return "devices of the host";
	}
	shared = kernel_open_tree(AT_FDCWD, SHARED_POINT, CLONE_TREE);
	*own = open(OWN_POINT, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	if (shared < 0 || *own < 0)
		return "DIRECTORY";
	/* The mounts we inherit are locked in place; only a bind of our own can become the root. */
	if (mount(ROOT_POINT, ROOT_POINT, NULL, MS_BIND | MS_REC, NULL) < 0 || chdir(ROOT_POINT) < 0)
		return "bind of the root";
	old = open("/", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	if (old < 0 || kernel_pivot_root(".", ".") < 0)
		return "pivot_root";
	if ((failed = mount_proc()) != NULL || (failed = mount_devices(trees, terminals)) != NULL ||
	    (failed = mount_run(shared)) != NULL || (failed = masks ? mask() : NULL) != NULL)
		return failed;
	if (fchdir(old) < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return "detach of the old root";
	close(old);
	umask(022);
	return NULL;
}
