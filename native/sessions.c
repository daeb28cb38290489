/* See sessions.h. */
#include "sessions.h"

#include "groups.h"
#include "pace.h"
#include "streams.h"

#include <errno.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MS 20000
#define LAST_WORDS_MAX 4
#define DESCRIPTORS_MAX 5

void session_break(struct run *run)
{
	source_close(&run->shell->line);
	group_signal(run->slot, SIGKILL);
}

void session_let_go(struct run *run)
{
	struct shell *shell = run->session != NULL ? run->session->shell : NULL;
	if (shell == NULL || shell->current != run)
		return;
	shell->current = NULL;
	shell->owed = true;
}

static void close_one(int *descriptor)
{
	if (*descriptor >= 0)
		close(*descriptor);
	*descriptor = -1;
}

/*
 * Of a text, init keeps the writing ends of the pipes until it is over: the shell closes its own before it answers, and each would wake init
 * for an end that the answer tells as well.
 */
static void close_pipes(struct launch *launch)
{
	close_one(&launch->output);
	close_one(&launch->errors);
}

static void fail_current(struct shell *shell, uint32_t code, uint32_t error)
{
	struct run *run = shell->current;
	shell->current = NULL;
	shell->due = 0;
	close_pipes(&run->launch);
	if (run->birth != NULL) {
		birth_failed(run, code, error);
		return;
	}
	run->failure = (struct launch_error){ .code = code, .error = error };
	run_launched(run);
}

/* The shell has answered: false when the answer does not fit. */
static bool take_done(struct shell *shell, uint32_t value)
{
	struct run *run = shell->current;
	if (shell->owed) {
		shell->owed = false;
		shell->due = 0;
		return true;
	}
	if (run == NULL || (run->birth == NULL && !run->in_session))
		return false;
	/* What was killed for its time is not saved by an answer that crossed with it. */
	if (run->timed_out)
		return true;
	shell->current = NULL;
	shell->due = 0;
	if (run->birth != NULL) {
		birth_confirmed(run);
		return true;
	}
	if (run->launching)
		run_launched(run);
	close_pipes(&run->launch);
	/* The shell has let go of the pipes: unless somebody else has them, their end is there to be read. */
	run->output.readable = run->errors.readable = true;
	run_ended(run, (value & 255) << 8);
	return true;
}

static bool take_not_run(struct shell *shell, const struct session_answer *answer)
{
	if (shell->owed)
		return take_done(shell, 0);
	if (shell->current == NULL || !shell->current->launching)
		return false;
	bool known = answer->value == 8 || answer->value == 11 || answer->value == 18;
	fail_current(shell, known ? answer->value : 12, answer->error);
	return true;
}

static bool take_answer(struct shell *shell, struct session_answer *answer)
{
	if (answer->serial != shell->serial)
		return false;
	switch (answer->kind) {
	case ANSWER_READY:
		if (shell->ready)
			return false;
		shell->ready = true;
		shell->due = 0;
		run_touch(shell->run);
		return true;
	case ANSWER_MISSING:
		answer->text[sizeof(answer->text) - 1] = 0;
		shell->complaint_length = (size_t)snprintf(shell->complaint, sizeof(shell->complaint), "it lacks %s", answer->text);
		return !shell->ready;
	case ANSWER_DONE: return take_done(shell, answer->value);
	case ANSWER_NOT_RUN: return take_not_run(shell, answer);
	default: return false;
	}
}

/*
 * Nothing tells that a text begins, because a word for it would wake init once more for each. What it writes shows it; and when the shell has
 * ended, that it has taken the order: then the text may have run, and counts as begun.
 */
static bool was_begun(const struct shell *shell, bool taken)
{
	const struct run *run = shell->current;
	return taken && run != NULL && run->launching && run->in_session && (run->flags & RUN_KEEP_VARIABLES) == 0;
}

static void line_ready(struct source *source, uint32_t events)
{
	struct shell *shell = (struct shell *)source;
	struct session_answer answer;
	(void)events;
	ssize_t count = recv(source->fd, &answer, sizeof(answer), MSG_DONTWAIT | MSG_TRUNC);
	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (count <= 0) {
		/* `exec`: the text that runs goes on in another program, and its end is the end of the session. */
		source_close(source);
		/* A line that is closed over an order that nobody has read fails (ECONNRESET); one whose order was taken just ends. */
		if (was_begun(shell, count == 0))
			run_launched(shell->current);
		else if (shell->current != NULL && shell->current->launching)
			session_break(shell->run);
	} else if (count != (ssize_t)sizeof(answer) || !take_answer(shell, &answer)) {
		session_break(shell->run);
	}
}

/* A file with everything behind the head of a long order. */
static int order_file(const struct run *run)
{
	const uint8_t *bytes = (const uint8_t *)run->memory + sizeof(struct session_order);
	size_t left = run->order_bytes - sizeof(struct session_order);
	int file = memfd_create("order", MFD_CLOEXEC);
	while (file >= 0 && left > 0) {
		ssize_t count = write(file, bytes, left);
		if (count <= 0) {
			close(file);
			return -1;
		}
		bytes += count;
		left -= (size_t)count;
	}
	return file;
}

static bool send_order(const struct run *run, int line, bool in_file, int file)
{
	union {
		char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	const int candidates[DESCRIPTORS_MAX] = { run->launch.input, run->launch.output, run->launch.errors, run->launch.script, file };
	int descriptors[DESCRIPTORS_MAX];
	size_t count = 0;
	for (int i = 0; i < DESCRIPTORS_MAX; i++)
		if (candidates[i] >= 0)
			descriptors[count++] = candidates[i];
	struct iovec span = { run->memory, in_file ? sizeof(struct session_order) : run->order_bytes };
	struct msghdr message = { .msg_iov = &span, .msg_iovlen = 1 };
	if (count > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		*header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
	}
	return sendmsg(line, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)span.iov_len;
}

void session_order(struct run *run)
{
	struct shell *shell = run->session->shell;
	struct session_order *head = run->memory;
	bool in_file = (head->flags & ORDER_IN_FILE) != 0;
	int file = in_file ? order_file(run) : -1;
	shell->current = run;
	head->serial = ++shell->serial;
	if (head->kind != ORDER_EXECUTE) {
		shell->due = commands_ms() + ANSWER_MS;
		commands_alarm(shell->due);
	}
	run->session->oom_kills = runs_oom_kills();
	if (run->in_session)
		run->record->pid = run->session->record->pid;
	errno = ENOMEM;
	bool sent = (!in_file || file >= 0) && send_order(run, shell->line.fd, in_file, file);
	int error = errno;
	if (file >= 0)
		close(file);
	close_one(&run->launch.input);
	close_one(&run->launch.script);
	if (!run->in_session)
		close_pipes(&run->launch);
	if (sent) {
		if (run->in_session)
			streams_await(run);
		return;
	}
	/* A shell that leaves an order unread is beyond use; what the kernel lacks is not its fault. */
	if (error == EAGAIN)
		session_break(run->session);
	fail_current(shell, error == EPIPE || error == ECONNRESET || error == EAGAIN ? 17 : 3, (uint32_t)error);
}

/* What is said on stderr before the shell is ours goes nowhere, but the first of it is kept for a refusal. */
static void hear_beginning(struct run *run)
{
	static char nowhere[4096];
	struct shell *shell = run->shell;
	struct source *errors = &run->errors.source;
	run->errors.readable = false;
	if (errors->fd < 0)
		return;
	/* Once per event, as everywhere: a program that never stops to complain holds nobody else up. */
	ssize_t count = read(errors->fd, nowhere, sizeof(nowhere));
	if (count > 0) {
		size_t room = COMPLAINT_MAX - shell->complaint_length, kept = (size_t)count < room ? (size_t)count : room;
		memcpy(shell->complaint + shell->complaint_length, nowhere, kept);
		shell->complaint_length += kept;
	}
	/* A pipe that all writers have closed reports that for ever. */
	if (count == 0 || run->reaped)
		source_unwatch(errors);
	else
		source_watch(errors, EPOLLIN);
}

bool session_settle(struct run *run)
{
	struct shell *shell = run->shell;
	if (shell->told || run->failure.code != 0)
		return true;
	if (shell->line.ready == NULL) {
		shell->line.ready = line_ready;
		shell->due = commands_ms() + ANSWER_MS;
		commands_alarm(shell->due);
		if (!source_watch(&shell->line, EPOLLIN))
			session_break(run);
	}
	if (!shell->ready) {
		hear_beginning(run);
		if (!run->reaped)
			return false;
		/* Its last word may be on the line. */
		if (shell->line.fd >= 0)
			line_ready(&shell->line, 0);
		group_signal(run->slot, SIGKILL);
		run->failure = (struct launch_error){ .code = 15 };
		run_launched(run);
		return true;
	}
	shell->told = true;
	run_tell_started(run);
	return true;
}

static void end_with_session(struct run *run)
{
	if (!run->in_session && (run->flags & RUN_DETACH) == 0 && run->birth == NULL)
		run_signal(run, 2, SIGKILL);
}

void session_over(struct run *run)
{
	struct shell *shell = run->shell;
	/* What the shell said before its end counts. */
	for (int i = 0; i < LAST_WORDS_MAX && shell->line.fd >= 0; i++)
		line_ready(&shell->line, 0);
	/* What was forked by the shell may have its end of the line still: an order that is not in it was taken. */
	int unread = 0;
	if (shell->line.fd >= 0 && was_begun(shell, ioctl(shell->line.fd, SIOCOUTQ, &unread) == 0 && unread == 0))
		run_launched(shell->current);
	source_close(&shell->line);
	group_signal(run->slot, SIGKILL);
	struct run *current = shell->current;
	/* What was ended by its time or by order has that as its end, even if the shell had not got to it. */
	bool ended = current != NULL && current->in_session && (run->timed_out || run->asked != 0);
	if (ended && current->launching)
		run_launched(current);
	if (current != NULL && current->launching) {
		fail_current(shell, 17, 0);
	} else if (current != NULL) {
		shell->current = NULL;
		close_pipes(&current->launch);
		current->died_with_session = true;
		current->record->why = run->record->why;
		run_ended(current, run->record->status);
	}
	for (struct run *other = runs_next(NULL); other != NULL; other = runs_next(other))
		if (other->session == run)
			end_with_session(other);
}

static void forget_session(struct run *run)
{
	run->session = NULL;
	if (run->record != NULL)
		run->record->session = NULL;
	if (run->birth != NULL)
		birth_failed(run, 17, 0);
	/* Nothing of the session is left that could write. */
	run->tree_empty = run->tree_empty || run->in_session;
	run_touch(run);
}

void session_release(struct run *run)
{
	birth_release(run);
	free(run->buried);
	session_let_go(run);
	if (run->in_session)
		close_pipes(&run->launch);
	if (run->shell == NULL)
		return;
	for (struct run *other = runs_next(NULL); other != NULL; other = runs_next(other))
		if (other->session == run)
			forget_session(other);
	source_close(&run->shell->line);
	free(run->shell);
	run->shell = NULL;
}

void session_alarm(struct run *run, uint64_t now)
{
	if (run->shell != NULL && run->shell->due != 0) {
		if (now >= run->shell->due)
			run->shell->due = 0, session_break(run);
		else
			commands_alarm(run->shell->due);
	}
	if (run->birth != NULL) {
		if (now >= run->birth->due)
			birth_failed(run, 11, ETIMEDOUT);
		else
			commands_alarm(run->birth->due);
	}
}

const char *session_refusal(const struct run *run)
{
	static char text[COMPLAINT_MAX + 64];
	if (run->failure.code == 15) {
		const struct shell *shell = run->shell;
		bool silent = shell->complaint_length == 0;
		snprintf(text, sizeof(text), "%.*s", silent ? COMPLAINT_MAX : (int)shell->complaint_length, silent ? "it does not load what a session needs" : shell->complaint);
		return text;
	}
	if (run->failure.code == 17)
		return "the session has ended";
	if (run->failure.code == 18)
		return "a read-only variable, whose number is errno";
	return "the command could not be set up";
}
