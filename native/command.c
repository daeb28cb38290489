/*
 * From the fork to execve: the child gives itself its descriptors, its user and its guards, and becomes the command.
 *
 * Always true: the process was forked by one thread of two, so nothing here allocates or takes a lock. It is a copy
 * of init and not dumpable until execve replaces it, so nobody inside can read init's memory through it. What goes
 * wrong is written to the error pipe, which closes by itself when execve succeeds.
 */
#include "command.h"

#include "accounts.h"
#include "guards.h"
#include "init.h"
#include "kernel.h"
#include "session-wire.h"
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define ERROR_PIPE 4
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define OOM_SCORE "500"
#define OPEN_FILES 1024

static _Noreturn void refuse(uint32_t code)
{
	struct launch_error failure = { .code = code, .error = (uint32_t)errno };
	if (write(ERROR_PIPE, &failure, sizeof(failure)) < 0)
		_exit(126);
	_exit(127);
}

static void take_descriptors(const struct launch *launch)
{
	/* Init holds 0 to 3 itself, so none of the sources is one of the targets. */
	/* Without an input 0 stays /dev/null. */
	if ((launch->input >= 0 && dup2(launch->input, 0) < 0) || dup2(launch->output, 1) < 0 || dup2(launch->errors, 2) < 0)
		_exit(126);
	if (launch->script >= 0 && dup2(launch->script, 3) < 0)
		_exit(126);
	if (launch->error != ERROR_PIPE && dup3(launch->error, ERROR_PIPE, O_CLOEXEC) < 0)
		_exit(126);
	if (launch->script < 0)
		close(3);
	if (launch->line >= 0 && dup2(launch->line, SESSION_LINE) < 0)
		refuse(12);
	if (kernel_close_range(launch->line >= 0 ? SESSION_LINE + 1 : ERROR_PIPE + 1, ~0u) < 0)
		refuse(12);
}

static void reset_signals(void)
{
	struct sigaction standard = { .sa_handler = SIG_DFL };
	sigset_t none;
	sigaction(SIGPIPE, &standard, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The machine, short of memory, shall end commands rather than daemons. Where it is not allowed it is not done. */
static void offer_to_oom_killer(void)
{
	/*
	 * Our /proc entries belong to us only while we are dumpable. Until the capabilities are dropped further down,
	 * nobody inside may attach to us even so: we have some that they do not.
	 */
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (file >= 0) {
		if (write(file, OOM_SCORE, sizeof(OOM_SCORE) - 1) < 0) {
			/* Nothing depends on it. */
		}
		close(file);
	}
	guards_hide_memory();
}

static void set_limits(void)
{
	struct rlimit files, none = { 0, 0 };
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max < OPEN_FILES ? files.rlim_max : OPEN_FILES;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	setrlimit(RLIMIT_CORE, &none);
}

static void take_terminal(const struct account *account)
{
	if (ioctl(0, TIOCSCTTY, 0) < 0 || fchown(0, account->uid, (gid_t)-1) < 0)
		refuse(12);
}

static void become(const struct account *account)
{
	if (sandbox.no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		refuse(12);
	/* Loaded while we still have CAP_SYS_ADMIN: without no_new_privs the kernel asks for it. */
	if (!(sandbox.open_guards & OPEN_SECCOMP) && filter_load() < 0)
		refuse(12);
	if (syscall(SYS_setgroups, account->group_count, account->groups) < 0 ||
	    syscall(SYS_setresgid, account->gid, account->gid, account->gid) < 0 ||
	    syscall(SYS_setresuid, account->uid, account->uid, account->uid) < 0)
		refuse(9);
	guards_hide_memory();
	if (!(sandbox.open_guards & OPEN_CAPABILITIES) && guards_set_capabilities(account->uid == 0) < 0)
		refuse(12);
}

static const char *search_path(char **environment)
{
	for (; *environment != NULL; environment++)
		if (strncmp(*environment, "PATH=", 5) == 0)
			return *environment + 5;
	return DEFAULT_PATH;
}

static void execute(const struct launch *launch)
{
	const char *name = launch->arguments[0];
	char candidate[PATH_MAX];
	int error = ENOENT;
	if (strchr(name, '/') != NULL) {
		execve(name, launch->arguments, launch->environment);
		refuse(10);
	}
	for (const char *path = search_path(launch->environment);;) {
		size_t length = strcspn(path, ":"), name_length = strlen(name);
		if (length + name_length + 2 <= sizeof(candidate)) {
			/* An empty entry is the current directory. */
			memcpy(candidate, path, length);
			if (length > 0)
				candidate[length++] = '/';
			memcpy(candidate + length, name, name_length + 1);
			execve(candidate, launch->arguments, launch->environment);
			if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
				refuse(10);
			if (errno == EACCES)
				error = EACCES;
		}
		path += strcspn(path, ":");
		if (*path == 0)
			break;
		path++;
	}
	errno = error;
	refuse(10);
}

_Noreturn void command_main(const struct launch *launch)
{
	struct account account;
	take_descriptors(launch);
	setsid();
	offer_to_oom_killer();
	/* The namespace is made where the command runs, so its own group is all it sees: "/". */
	if (!(sandbox.open_guards & OPEN_CGROUP) && unshare((int)NEW_CGROUP) < 0)
		refuse(12);
	set_limits();
	umask(022);
	int error = account_find(launch->user, &account);
	if (error != 0) {
		errno = error;
		refuse(9);
	}
	if (launch->terminal)
		take_terminal(&account);
	become(&account);
	if (chdir(launch->directory) < 0)
		refuse(8);
	reset_signals();
	if (launch->worker)
		worker_main(launch->early, launch->early_count);
	execute(launch);
	_exit(127);
}
