/*
 * Trying what this machine can do, one guard at a time, in a child that is thrown away.
 *
 * Always true: a guard counts as present only when its effect was seen, never because a file or device exists; nothing
 * that a probe makes outlives the child.
 */
#include "probe.h"

#include "create.h"
#include "guards.h"
#include "inside.h"
#include "kernel.h"
#include "overlay.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PROBE_BASE 2000000000u /* ids nobody has; the probe leaves no file behind */

static int report_pipe;

static int failed(const char *step, const char *sentence)
{
	report_failure(report_pipe, errno, step, "%s", sentence);
	return 1;
}

/* Runs `body` in a child with new namespaces: 0, or -1 with the errno that the clone or the child had. */
static int in_child(uint64_t namespaces, int cgroup, bool map, int (*body)(void))
{
	int gate[2], result[2], error = 0;
	char go;
	if (pipe2(gate, O_CLOEXEC) < 0 || pipe2(result, O_CLOEXEC) < 0)
		return -1;
	struct clone_request request = { .flags = namespaces | (cgroup >= 0 ? CLONE_IN_CGROUP : 0), .exit_signal = SIGCHLD, .cgroup = cgroup >= 0 ? (uint64_t)cgroup : 0 };
	pid_t pid = kernel_clone(&request);
	if (pid < 0)
		return -1;
	if (pid == 0) {
		close(gate[1]);
		if (map && (read(gate[0], &go, 1) != 1 || inside_become_root() != NULL))
			error = errno != 0 ? errno : EPERM;
		else if (body() < 0)
			error = errno;
		_exit(write(result[1], &error, sizeof(error)) == (ssize_t)sizeof(error) ? 0 : 1);
	}
	close(result[1]);
	if (map && (write_id_maps(pid, PROBE_BASE) < 0 || write(gate[1], "g", 1) != 1)) {
		error = errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		errno = error;
		return -1;
	}
	if (read(result[0], &error, sizeof(error)) != (ssize_t)sizeof(error))
		error = ECHILD;
	waitpid(pid, NULL, 0);
	errno = error;
	return error == 0 ? 0 : -1;
}

static int nothing(void)
{
	return 0;
}

static int is_first_process(void)
{
	if (getpid() == 1)
		return 0;
	errno = EPERM;
	return -1;
}

static int mount_proc(void)
{
	if (unshare(CLONE_NEWNS) < 0)
		return -1;
	return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

static int lone_loopback(void)
{
	if (inside_leave_host("probe") != NULL)
		return -1;
	struct if_nameindex *names = if_nameindex();
	bool others = false;
	for (struct if_nameindex *name = names; name != NULL && name->if_index != 0; name++)
		others = others || strcmp(name->if_name, "lo") == 0;
	if_freenameindex(names);
	errno = ENODEV;
	return others ? 0 : -1;
}

static int filter_refuses(void)
{
	filter_prepare();
	if (filter_load() < 0)
		return -1;
	if (unshare(CLONE_NEWUSER) == 0 || errno != EPERM || syscall(435, NULL, 0) == 0 || errno != ENOSYS) {
		errno = ENOSYS;
		return -1;
	}
	return 0;
}

/* A user namespace with our probe's ids, held by a descriptor after its process is gone. */
static int namespace_descriptor(void)
{
	char path[64];
	struct clone_request request = { .flags = NEW_USER, .exit_signal = SIGCHLD };
	pid_t pid = kernel_clone(&request);
	if (pid < 0)
		return -1;
	if (pid == 0) {
		for (;;)
			pause();
	}
	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	int descriptor = write_id_maps(pid, PROBE_BASE) < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	int error = errno;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	errno = error;
	return descriptor;
}

/* A private mount namespace with an empty tmpfs as the current directory. */
static int enter_scratch(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755") < 0)
		return -1;
	return chdir("/tmp");
}

static int probe_idmap(void)
{
	struct stat info;
	if (enter_scratch() < 0)
		return failed("mount namespace", "a private mount namespace with a tmpfs cannot be made");
	int user = namespace_descriptor();
	if (user < 0)
		return failed("user namespace", "a user namespace with 65,536 mapped ids cannot be made");
	/* On the file system of / rather than on our tmpfs: layers live on a disk, whose file system decides. */
	int tree = kernel_open_tree(AT_FDCWD, "/usr", CLONE_TREE);
	if (tree < 0 || idmap_tree(tree, user, 0) < 0)
		return failed("id-mapped mount", "the kernel or the file system of /usr has no id-mapped mounts (Linux 5.19 has them for overlay)");
	if (fstatat(tree, "", &info, AT_EMPTY_PATH) < 0)
		return failed("id-mapped mount", "an id-mapped mount cannot be read");
	if (info.st_uid != PROBE_BASE) {
		errno = EINVAL;
		return failed("id-mapped mount", "an id-mapped mount does not map ids");
	}
	return 0;
}

static int probe_overlay(void)
{
	struct create_request request = { .uid_base = PROBE_BASE, .layer_count = 1, .layers = { "/usr" } };
	struct own_trees own;
	struct stat info;
	if (enter_scratch() < 0 || mkdir("upper", 0755) < 0 || mkdir("work", 0755) < 0 || mkdir("shared", 0755) < 0)
		return failed("mount namespace", "a private mount namespace with a tmpfs cannot be made");
	int user = namespace_descriptor();
	if (user < 0)
		return failed("user namespace", "a user namespace with 65,536 mapped ids cannot be made");
	own.directory = kernel_open_tree(AT_FDCWD, ".", CLONE_TREE);
	own.shared = kernel_open_tree(AT_FDCWD, "shared", CLONE_TREE);
	if (enter_scratch() < 0)
		return failed("mount namespace", "a tmpfs cannot be mounted");
	const char *step = overlay_mount_in(&request, own, user);
	if (step != NULL)
		return failed(step, overlay_explain());
	/* Renaming a directory of the lower layer is what redirect_dir is for, and what package managers do. */
	if (overlay_take_ids(PROBE_BASE) < 0 || rename(ROOT_POINT "/share", ROOT_POINT "/moved") < 0 || stat(ROOT_POINT "/moved", &info) < 0)
		return failed("overlay", "a directory of a lower layer cannot be renamed in the overlay");
	return 0;
}

/* Where the cgroup v2 tree is mounted, from /proc/self/mounts. */
static bool find_cgroup2(char *path, size_t size)
{
	char line[1024], type[64], point[512];
	bool found = false;
	FILE *mounts = fopen("/proc/self/mounts", "re");
	while (mounts != NULL && !found && fgets(line, sizeof(line), mounts) != NULL)
		if (sscanf(line, "%*s %511s %63s", point, type) == 2 && strcmp(type, "cgroup2") == 0) {
			snprintf(path, size, "%s", point);
			found = true;
		}
	if (mounts != NULL)
		fclose(mounts);
	return found;
}

static int probe_group(bool clone_into)
{
	char root[512], path[600];
	if (!find_cgroup2(root, sizeof(root))) {
		errno = ENOENT;
		return failed("cgroup2", "no cgroup v2 tree is mounted");
	}
	snprintf(path, sizeof(path), "%s/atoll-probe-%d", root, getpid());
	if (mkdir(path, 0755) < 0)
		return failed("cgroup2", "a group cannot be made in the cgroup v2 tree");
	int group = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	int killer = group < 0 ? -1 : openat(group, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	int freezer = group < 0 ? -1 : openat(group, "cgroup.freeze", O_WRONLY | O_CLOEXEC);
	int status = 0;
	if (killer < 0 || freezer < 0)
		status = failed("cgroup2", "groups have no cgroup.kill and cgroup.freeze (Linux 5.14 has both)");
	else if (clone_into && in_child(0, group, false, nothing) < 0)
		status = failed("clone into cgroup", "a process cannot be started inside a group (clone3 with CLONE_INTO_CGROUP)");
	rmdir(path);
	return status;
}

static int run_probe(const char *name)
{
	if (strcmp(name, "user-namespace") == 0)
		return in_child(NEW_USER, -1, true, nothing) < 0 ? failed("user namespace", "a user namespace with 65,536 mapped ids cannot be made; a security policy may forbid it") : 0;
	if (strcmp(name, "pid-namespace") == 0)
		return in_child(NEW_USER | NEW_PID, -1, true, is_first_process) < 0 ? failed("pid namespace", "a process namespace cannot be made") : 0;
	if (strcmp(name, "network-namespace") == 0)
		return in_child(NEW_USER | NEW_PID, -1, true, lone_loopback) < 0 ? failed("network namespace", "a network namespace with a loopback interface cannot be made") : 0;
	if (strcmp(name, "proc-mount") == 0)
		return in_child(NEW_USER | NEW_PID, -1, true, mount_proc) < 0 ? failed("/proc", "/proc cannot be mounted in a sandbox; inside a container the outer /proc must not be masked") : 0;
	if (strcmp(name, "seccomp") == 0)
		return in_child(0, -1, false, filter_refuses) < 0 ? failed("seccomp", "the kernel takes no system call filter, or it has no effect") : 0;
	if (strcmp(name, "id-mapped-mounts") == 0)
		return probe_idmap();
	if (strcmp(name, "overlay") == 0)
		return probe_overlay();
	if (strcmp(name, "cgroup2") == 0)
		return probe_group(false);
	if (strcmp(name, "clone-into-cgroup") == 0)
		return probe_group(true);
	errno = EINVAL;
	return failed("probe", "no guard has that name");
}

int probe_guard(const char *name, int report)
{
	report_pipe = report;
	if (run_probe(name) != 0)
		return 1;
	report_send(report, RECORD_DONE, 0);
	return 0;
}
