/*
 * Processes from a session, between the fork in its shell and their first word.
 *
 * The kernel, not the shell, tells which process speaks (SCM_CREDENTIALS); it is taken only if it is a child of ours, of no other run, and in
 * the group of its session.
 *
 * Always true: a process that is told to go is in its own group, and its pid is known, so its end will be.
 */
#include "groups.h"
#include "pace.h"
#include "sessions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIRTH_MS 20000

static void birth_ready(struct source *source, uint32_t events);

bool birth_open(struct run *run, int ours)
{
	int on = 1;
	struct birth *birth = calloc(1, sizeof(*birth));
	if (birth == NULL) {
		close(ours);
		return false;
	}
	*birth = (struct birth){ .source = { .fd = ours, .ready = birth_ready }, .run = run, .due = commands_ms() + BIRTH_MS };
	run->birth = birth;
	commands_alarm(birth->due);
	return setsockopt(ours, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0 && source_watch(&birth->source, EPOLLIN);
}

void birth_release(struct run *run)
{
	if (run->birth == NULL)
		return;
	source_close(&run->birth->source);
	/* An event of this round may still point to it. */
	run->buried = run->birth;
	run->birth = NULL;
}

void birth_failed(struct run *run, uint32_t code, uint32_t error)
{
	run->failure = (struct launch_error){ .code = code, .error = error };
	session_let_go(run);
	birth_release(run);
	run_launched(run);
}

static bool is_ours(const struct run *run, int pid)
{
	siginfo_t info;
	return pid > 1 && !runs_have_pid(pid) && group_has(run->session->slot, pid) && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Why there is none: its session has ended, or could not fork. */
static uint16_t no_process(const struct run *run)
{
	return run->session == NULL || run->session->reaped ? 17 : 11;
}

static void settle(struct run *run)
{
	struct birth *birth = run->birth;
	/* Also a failure waits for the shell: whoever hears of it may give the session its next order at once. */
	if (!birth->said || !birth->shell_said)
		return;
	if (birth->trouble.code != 0) {
		birth_failed(run, birth->trouble.code, birth->trouble.error);
		return;
	}
	if (run->session == NULL || !is_ours(run, birth->pid)) {
		birth_failed(run, no_process(run), ESRCH);
		return;
	}
	atomic_store(runs_pid_of(run->slot), birth->pid);
	if (!group_take(run->slot, birth->pid) || send(birth->source.fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
		/* It is our child and will be reaped; without the word it ends by itself. */
		birth_failed(run, 11, (uint32_t)errno);
		return;
	}
	birth_release(run);
	run_launched(run);
}

void birth_confirmed(struct run *run)
{
	run->birth->shell_said = true;
	settle(run);
}

static void birth_ready(struct source *source, uint32_t events)
{
	struct birth *birth = (struct birth *)source;
	struct session_birth told;
	union {
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control;
	struct iovec span = { &told, sizeof(told) };
	struct msghdr message = { .msg_iov = &span, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes) };
	(void)events;
	ssize_t count = recvmsg(source->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	const struct cmsghdr *header = count == (ssize_t)sizeof(told) ? CMSG_FIRSTHDR(&message) : NULL;
	struct ucred who = { .pid = -1 };
	if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_CREDENTIALS)
		memcpy(&who, CMSG_DATA(header), sizeof(who));
	source_unwatch(source);
	birth->said = true;
	birth->pid = who.pid;
	if (who.pid < 0)
		birth->trouble = (struct launch_error){ .code = no_process(birth->run), .error = ESRCH };
	else if (told.code != 0)
		birth->trouble = (struct launch_error){ .code = told.code == 8 ? 8 : 12, .error = told.error };
	settle(birth->run);
}
