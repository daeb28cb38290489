/*
 * The launcher: a thread of PID 1 that only forks.
 *
 * It is a thread so that it alone is a member of the sandbox's cgroup v1 groups: what it forks is limited from birth
 * without an attach per command, while PID 1's main thread stays outside every limit. It starts before the mounts do,
 * because joining a v1 group can take 10 ms.
 *
 * Always true: the main thread never waits for this thread after launcher_follow. A limit that holds the launcher
 * back (cpu quota, reclaim) delays new commands and nothing else.
 */
#include "launcher.h"

#include "command.h"
#include "guards.h"
#include "init.h"
#include "inside.h"
#include "kernel.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int tasks[V1_GROUPS_MAX];
static size_t task_count;
static sem_t may_follow, has_followed;
static const char *failed_step;
static int failed_error;
static int wake = -1;

/* One writer, one reader. A slot is free once the reader has moved past it; LAUNCHES_MAX bounds what is in flight. */
static struct launch *ring[LAUNCHES_MAX];
static atomic_uint written;
static unsigned taken;

static const char *join_groups(void)
{
	for (size_t i = 0; i < task_count; i++) {
		/* "0" is the writing thread; the kernel checks the credentials of whoever opened the file, real root. */
		if (!(sandbox.open_guards & OPEN_CGROUP) && write(tasks[i], "0", 1) != 1)
			return "join of a v1 group";
		close(tasks[i]);
	}
	return NULL;
}

static const char *follow_main_thread(void)
{
	const char *failed = inside_become_root();
	if (failed != NULL)
		return failed;
	int main_thread = kernel_pidfd_open(getpid());
	if (main_thread < 0 || unshare(CLONE_FS) < 0 || setns(main_thread, (int)(NEW_MOUNT | NEW_NET | NEW_IPC | NEW_UTS)) < 0)
		return "launcher's namespaces";
	close(main_thread);
	if (!(sandbox.open_guards & OPEN_CAPABILITIES) && guards_drop_bounding() < 0)
		return "capability bounding set";
	return NULL;
}

static void launch(struct launch *job)
{
	struct clone_request request = {
		.flags = CLONE_IN_CGROUP | CLONE_STORE_PID, .exit_signal = SIGCHLD,
		.cgroup = (uint64_t)job->group, .parent_tid = (uint64_t)(uintptr_t)job->pid,
	};
	pid_t pid = kernel_clone(&request);
	if (pid == 0)
		command_main(job);
	if (pid < 0) {
		struct launch_error failure = { .code = 11, .error = (uint32_t)errno };
		if (write(job->error, &failure, sizeof(failure)) < 0) {
			/* Only a main thread that is gone does not read. */
		}
	}
	if (job->input >= 0 && job->input != job->output)
		close(job->input);
	if (job->errors != job->output)
		close(job->errors);
	close(job->output);
	if (job->script >= 0)
		close(job->script);
	if (job->line >= 0)
		close(job->line);
	close(job->error);
}

static void *launcher_main(void *unused)
{
	(void)unused;
	failed_step = join_groups();
	failed_error = errno;
	while (sem_wait(&may_follow) < 0 && errno == EINTR)
		;
	if (failed_step == NULL) {
		failed_step = follow_main_thread();
		failed_error = errno;
	}
	sem_post(&has_followed);
	for (;;) {
		uint64_t count;
		if (read(wake, &count, sizeof(count)) < 0)
			continue;
		while (taken != atomic_load_explicit(&written, memory_order_acquire)) {
			struct launch *job = ring[taken % LAUNCHES_MAX];
			taken++;
			launch(job);
		}
	}
	return NULL;
}

int launcher_start(const int *v1_tasks, size_t count)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;
	task_count = count;
	for (size_t i = 0; i < count; i++)
		tasks[i] = v1_tasks[i];
	wake = eventfd(0, EFD_CLOEXEC);
	if (wake < 0 || sem_init(&may_follow, 0, 0) < 0 || sem_init(&has_followed, 0, 0) < 0)
		return errno;
	/* Signals are the main thread's business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 256 * 1024);
	int error = pthread_create(&thread, &attributes, launcher_main, NULL);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

const char *launcher_follow(void)
{
	sem_post(&may_follow);
	while (sem_wait(&has_followed) < 0 && errno == EINTR)
		;
	errno = failed_error;
	return failed_step;
}

void launcher_submit(struct launch *job)
{
	unsigned position = atomic_load_explicit(&written, memory_order_relaxed);
	uint64_t one = 1;
	ring[position % LAUNCHES_MAX] = job;
	atomic_store_explicit(&written, position + 1, memory_order_release);
	if (write(wake, &one, sizeof(one)) < 0) {
		/* The counter cannot overflow: at most LAUNCHES_MAX launches are in flight. */
	}
}
