/*
 * PID 1 of a sandbox: its set-up in order, its main loop, its deadline and its end.
 *
 * Always true: it is not dumpable and shows nothing of the host in its name or arguments; it is in CGROUP/init, outside
 * every limit of the sandbox; no signal from inside ends or stops it; and when it ends, the kernel ends everything
 * inside with it.
 */
#include "init.h"

#include "connections.h"
#include "groups.h"
#include "guards.h"
#include "inside.h"
#include "journal-spare.h"
#include "launcher.h"
#include "pace.h"
#include "report.h"
#include "runs.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define KILL_WAIT_MS 1000
#define DEADLINE_GRACE_MS 1000

extern char **environ;

struct sandbox sandbox;

static struct source signals = { .fd = -1 };
static const char *end_reason;
static uint64_t kill_at, exit_at;

bool init_ending(void)
{
	return end_reason != NULL;
}

void init_end(const char *reason, uint32_t grace_ms)
{
	if (init_ending())
		return;
	end_reason = reason;
	kill_at = boot_ms() + grace_ms;
	runs_signal_all(SIGTERM, false);
	loop_alarm(kill_at);
}

/* The file appears complete or not at all. */
static void write_end_file(void)
{
	char part[256];
	if (sandbox.end_file == NULL)
		return;
	snprintf(part, sizeof(part), ".%s.part", sandbox.end_file);
	unlinkat(sandbox.own_directory, part, 0);
	int file = openat(sandbox.own_directory, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file < 0)
		return;
	bool written = dprintf(file, "%s\n", end_reason) > 0;
	close(file);
	if (written)
		renameat(sandbox.own_directory, part, sandbox.own_directory, sandbox.end_file);
}

static _Noreturn void leave(void)
{
	groups_remove_all();
	write_end_file();
	_exit(0);
}

static void init_alarm(uint64_t now)
{
	if (!init_ending() && sandbox.deadline != 0) {
		if (now >= sandbox.deadline)
			init_end("deadline", DEADLINE_GRACE_MS);
		else
			loop_alarm(sandbox.deadline);
	}
	if (kill_at != 0 && now >= kill_at) {
		kill_at = 0;
		groups_kill_all();
		exit_at = now + KILL_WAIT_MS;
	}
	if (exit_at != 0 && now >= exit_at)
		leave();
	loop_alarm(kill_at);
	loop_alarm(exit_at);
	runs_alarm();
	spare_alarm(now);
}

static void init_round(void)
{
	do
		connections_round();
	while (runs_round());
	if (init_ending() && runs_live() == 0 && connections_idle())
		leave();
}

static void signals_ready(struct source *source, uint32_t events)
{
	struct signalfd_siginfo info[8];
	(void)events;
	while (read(source->fd, info, sizeof(info)) == (ssize_t)sizeof(info))
		;
	runs_reap();
}

static bool watch_signals(void)
{
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	/* Only SIGCHLD is blocked: what else comes from inside is dropped by the kernel, and must not pile up pending. */
	sigprocmask(SIG_SETMASK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals.fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
	signals.ready = signals_ready;
	return signals.fd >= 0 && source_watch(&signals, EPOLLIN);
}

/* Our arguments and environment are the spawner's, and /proc/1/cmdline is for all to read. */
static void forget_arguments(char **argv)
{
	static char *nothing[] = { NULL };
	for (char **variable = environ; *variable != NULL; variable++)
		memset(*variable, 0, strlen(*variable));
	environ = nothing;
	for (char **argument = argv; *argument != NULL; argument++)
		memset(*argument, 0, strlen(*argument));
}

static bool wait_for_order(int orders)
{
	char order;
	ssize_t count;
	do
		count = read(orders, &order, 1);
	while (count < 0 && errno == EINTR);
	return count == 1;
}

static char *copy(const char *text)
{
	char *copied = text == NULL ? NULL : strdup(text);
	if (text != NULL && copied == NULL)
		_exit(1);
	return copied;
}

static const char *set_up(const struct create_request *request, struct init_start *start)
{
	const char *failed;
	bool masks = !(request->open_guards & OPEN_MASKS);
	if ((errno = launcher_start(start->v1_tasks, start->v1_count)) != 0)
		return "launcher";
	/* The helper that gives the orders is gone: nobody would ever know of this sandbox. */
	if (!wait_for_order(start->orders))
		_exit(1);
	if ((failed = inside_become_root()) != NULL || (failed = inside_leave_host(request->hostname != NULL ? request->hostname : request->id)) != NULL)
		return failed;
	filter_prepare();
	if (!wait_for_order(start->orders))
		_exit(1);
	if ((failed = inside_mount(masks, &sandbox.terminals, &sandbox.own_directory)) != NULL)
		return failed;
	if ((failed = launcher_follow()) != NULL)
		return failed;
	if (request->open_guards & OPEN_DUMPABLE)
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	else
		guards_hide_memory();
	spare_forget();
	if (!loop_open() || !pace_open() || !watch_signals() || !connections_listen(start->listener))
		return "event loop";
	return NULL;
}

_Noreturn void init_main(const struct create_request *request, struct init_start *start, char **argv)
{
	guards_hide_memory();
	prctl(PR_SET_NAME, "atoll-init");
	forget_arguments(argv);
#ifdef M_ARENA_MAX
	/* The launcher allocates nothing; a second arena would only cost. */
	mallopt(M_ARENA_MAX, 1);
#endif
	sandbox = (struct sandbox){
		.generation = request->generation, .deadline = request->deadline, .fence = request->fence,
		.open_guards = request->open_guards, .no_new_privileges = (request->flags & CREATE_NO_NEW_PRIVILEGES) != 0,
		.run_group = start->run_group, .memory_events = start->memory_events, .journals = start->journals, .end_file = copy(request->end_file),
	};
	const char *failed = set_up(request, start);
	if (failed != NULL) {
		report_failure(start->answers, errno, failed, "setting up the inside of the sandbox failed at: %s", failed);
		_exit(1);
	}
	loop_alarm(sandbox.deadline);
	if (report_send(start->answers, RECORD_DONE, 0) < 0)
		_exit(1);
	close(start->answers);
	close(start->orders);
	loop_run(init_round, init_alarm);
}
