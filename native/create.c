/*
 * The host's half of making a sandbox: opens what init needs while still real root, starts init in its namespaces,
 * and mounts the root file system for it.
 *
 *   helper (real root, own mount namespace)            init (PID 1 of the sandbox)
 *     open cgroups, bind init.sock, tmpfs over DIRECTORY
 *     clone ------------------------------------------> launcher thread joins the v1 groups
 *     write id maps; "mapped" ------------------------> become uid 0 inside, network, ipc, uts, lo
 *     id-mapped layers, overlay; "mounted" -----------> mount namespace, /proc, /dev, pivot_root
 *     <------------------------------------------------ ready, or which step failed
 *     link it to the router, if it is to have a network
 *     report, exit: its mount namespace goes with it
 *
 * Always true: the helper's mounts exist only in its private namespace, so whatever happens to it nothing stays
 * mounted; and init ends when the helper ends before saying "mounted".
 */
#include "create.h"

#include "init.h"
#include "kernel.h"
#include "network.h"
#include "overlay.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static int report_pipe;

#define FAIL(step, ...)                                             \
	do {                                                        \
		report_failure(report_pipe, errno, step, __VA_ARGS__); \
		_exit(1);                                           \
	} while (0)

int write_id_maps(pid_t pid, uint32_t base)
{
	static const char *const files[] = { "uid_map", "gid_map" };
	char path[64], map[64];
	int length = snprintf(map, sizeof(map), "0 %u %u\n", base, SANDBOX_IDS);
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, files[i]);
		int file = open(path, O_WRONLY | O_CLOEXEC);
		if (file < 0)
			return -1;
		ssize_t count = write(file, map, (size_t)length);
		int error = errno;
		close(file);
		errno = error;
		if (count != length)
			return -1;
	}
	return 0;
}

/* Descriptors 0 to 2 become /dev/null, and no descriptor of init is ever 0 to 3: a command's own come from outside. */
static void plug_standard_descriptors(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		FAIL("/dev/null", "cannot open /dev/null");
	for (int i = 0; i <= 2; i++)
		if (dup2(null, i) < 0)
			FAIL("/dev/null", "cannot use /dev/null as descriptor %d", i);
	/* The report pipe came as 3. */
	int moved = fcntl(report_pipe, F_DUPFD_CLOEXEC, 10);
	if (moved < 0 || dup3(null, 3, O_CLOEXEC) < 0)
		FAIL("/dev/null", "cannot use /dev/null as descriptor 3");
	report_pipe = moved;
	if (null > 3)
		close(null);
}

static void make_missing(const char *name)
{
	if (mkdir(name, 0755) < 0 && errno != EEXIST)
		FAIL("directory", "cannot make %s", name);
}

/* Init writes there with its shifted ids, and nobody inside has a name for it. */
static int open_journals(uint32_t uid_base)
{
	if (mkdir("journals", 0700) < 0 && errno != EEXIST)
		FAIL("journals", "cannot make DIRECTORY/journals");
	int directory = open("journals", O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (directory < 0 || fchown(directory, uid_base, uid_base) < 0 || fchmod(directory, 0700) < 0)
		FAIL("journals", "cannot give DIRECTORY/journals to the sandbox's root");
	return directory;
}

static int listen_at(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", name);
	if (unlink(name) < 0 && errno != ENOENT)
		FAIL("socket", "cannot remove an earlier %s", name);
	mode_t mask = umask(0177);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, 1024) < 0)
		FAIL("socket", "cannot listen at %s", name);
	umask(mask);
	return listener;
}

static void open_cgroups(const struct create_request *request, struct init_start *start, int *leaf)
{
	static const char *const owned[] = {
		"cgroup.procs", "cgroup.threads", "run", "run/cgroup.procs", "run/cgroup.threads", "run/cgroup.kill",
	};
	int group = open(request->cgroup, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	if (group < 0)
		FAIL("cgroup", "cannot open %s", request->cgroup);
	*leaf = openat(group, "init", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	start->run_group = openat(group, "run", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
	if (*leaf < 0 || start->run_group < 0)
		FAIL("cgroup", "CGROUP needs the children init and run");
	for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
		if (fchownat(group, owned[i], request->uid_base, request->uid_base, AT_SYMLINK_NOFOLLOW) < 0)
			FAIL("cgroup", "cannot give CGROUP/%s to the sandbox's root", owned[i]);
	start->memory_events = openat(group, "memory.events", O_RDONLY | O_CLOEXEC);
	for (size_t i = 0; i < request->v1_group_count; i++) {
		int v1 = open(request->v1_groups[i], O_DIRECTORY | O_RDONLY | O_CLOEXEC);
		start->v1_tasks[i] = v1 < 0 ? -1 : openat(v1, "tasks", O_WRONLY | O_CLOEXEC);
		if (start->v1_tasks[i] < 0)
			FAIL("v1 group", "cannot open tasks of %s", request->v1_groups[i]);
		int oom = openat(v1, "memory.oom_control", O_RDONLY | O_CLOEXEC);
		if (oom >= 0 && start->memory_events < 0)
			start->memory_events = oom;
		else if (oom >= 0)
			close(oom);
		close(v1);
	}
	start->v1_count = request->v1_group_count;
	close(group);
}

/* Hides DIRECTORY behind a small tmpfs in our own mount namespace, where layers get short names that tell nothing. */
static struct own_trees enter_private_directory(const struct create_request *request)
{
	struct own_trees own;
	if (unshare(CLONE_NEWNS) < 0)
		FAIL("mount namespace", "cannot make a mount namespace");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		FAIL("mount namespace", "cannot make mounts private");
	own.directory = kernel_open_tree(AT_FDCWD, ".", CLONE_TREE);
	own.shared = kernel_open_tree(AT_FDCWD, "shared", CLONE_TREE);
	if (own.directory < 0 || own.shared < 0)
		FAIL("mount namespace", "cannot clone the mount of DIRECTORY");
	if (mount("tmpfs", request->directory, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755,size=1m") < 0 ||
	    chdir(request->directory) < 0)
		FAIL("mount namespace", "cannot mount a tmpfs over DIRECTORY");
	return own;
}

/*
 * A user namespace is charged to whoever makes it: made by the shifted root, a sandbox uses up its own inotify instances,
 * not those that the host's root and every other sandbox share. The capabilities stay in effect.
 */
static int take_effective_id(uint32_t id)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	if (syscall(SYS_capget, &header, data) < 0 || seteuid(id) < 0)
		return -1;
	data[0].effective = data[0].permitted;
	data[1].effective = data[1].permitted;
	return (int)syscall(SYS_capset, &header, data);
}

static pid_t start_init(const struct create_request *request, struct init_start *start, int leaf, char **argv)
{
	int orders[2], answers[2];
	if (pipe2(orders, O_CLOEXEC) < 0 || pipe2(answers, O_CLOEXEC) < 0)
		FAIL("pipe", "no descriptor left");
	start->orders = orders[0];
	start->answers = answers[1];
	struct clone_request clone = {
		/* A sibling of ours: the spawner is its parent and reaps it. */
		.flags = CLONE_AS_SIBLING | NEW_USER | NEW_PID | CLONE_IN_CGROUP,
		.cgroup = (uint64_t)leaf,
	};
	if (take_effective_id(request->uid_base) < 0)
		FAIL("effective id", "cannot become %u to make the user namespace", request->uid_base);
	pid_t pid = kernel_clone(&clone);
	if (pid != 0 && take_effective_id(0) < 0)
		FAIL("effective id", "cannot become root again");
	if (pid < 0)
		FAIL("clone", "cannot start init in new user and pid namespaces inside CGROUP/init");
	if (pid == 0) {
		close(orders[1]);
		close(answers[0]);
		close(report_pipe);
		close(leaf);
		init_main(request, start, argv);
	}
	close(orders[0]);
	close(answers[1]);
	start->orders = orders[1];
	start->answers = answers[0];
	return pid;
}

static void raise_descriptor_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

_Noreturn void create_sandbox(const struct create_request *request, int report, char **argv)
{
	struct init_start start = { .memory_events = -1 };
	struct record_report record;
	int leaf;
	report_pipe = report;
	umask(022);
	raise_descriptor_limit();
	plug_standard_descriptors();
	if (chdir(request->directory) < 0)
		FAIL("directory", "cannot enter %s", request->directory);
	make_missing("shared");
	if (request->writable == NULL) {
		make_missing("upper");
		make_missing("work");
	}
	if (request->writable == NULL && request->usr_layer_count > 0) {
		make_missing("usr-upper");
		make_missing("usr-work");
	}
	start.journals = open_journals(request->uid_base);
	start.listener = listen_at("init.sock");
	open_cgroups(request, &start, &leaf);
	struct own_trees own = enter_private_directory(request);

	pid_t pid = start_init(request, &start, leaf, argv);
	if (report_send(report_pipe, RECORD_PID, pid) < 0)
		_exit(1);
	if (write_id_maps(pid, request->uid_base) < 0)
		FAIL("id maps", "cannot map 65,536 ids from %u", request->uid_base);
	if (write(start.orders, "m", 1) != 1)
		FAIL("init", "init ended before its ids were mapped");

	const char *step = overlay_mount(request, own, pid);
	if (step != NULL)
		FAIL(step, "%s", overlay_explain());
	if (write(start.orders, "r", 1) != 1)
		FAIL("init", "init ended before its root was mounted");
	if (report_receive(start.answers, &record) != 1) {
		errno = ECHILD;
		FAIL("init", "init died while it set up the sandbox");
	}
	if (record.kind != RECORD_DONE) {
		report_failure(report_pipe, record.value, record.step, "%s", record.message);
		_exit(1);
	}
	const char *unlinked = request->network.netns == NULL ? NULL : network_attach(&request->network, request->cgroup);
	if (unlinked != NULL)
		FAIL(unlinked, "the sandbox could not be given a network");
	if (report_send(report_pipe, RECORD_DONE, 0) < 0)
		kill(pid, SIGKILL);
	_exit(0);
}
