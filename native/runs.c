/* The life of each run; see runs.h. The table is in run-table.c, streams are in streams.c, parsing in run-request.c. */
#include "runs.h"

#include "groups.h"
#include "init.h"
#include "input.h"
#include "journal-spare.h"
#include "pace.h"
#include "sessions.h"
#include "streams.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUN = 40, STARTED = 41, EXITED = 45, TREE_ENDED = 46, STDIN_END = 48, SIGNAL_RUN = 49, SESSION_ENDED = 50 };

#define WORKER_END_MS 5000

static struct run *touched;

void run_touch(struct run *run)
{
	if (run->touched)
		return;
	run->touched = true;
	run->next_touched = touched;
	touched = run;
}

/* Gives everything back. Only for a run of which nothing lives. */
void run_free(struct run *run)
{
	if (run->connection != NULL)
		run->connection->run = NULL;
	for (struct run **link = &touched; run->touched; link = &(*link)->next_touched) {
		if (*link == run) {
			*link = run->next_touched;
			run->touched = false;
			break;
		}
	}
	session_release(run);
	source_close(&run->error);
	source_unwatch(&run->group);
	source_close(&run->output.source);
	source_close(&run->errors.source);
	source_close(&run->input);
	buffer_free(&run->held);
	input_refuse_all(run);
	if (run->journal != NULL)
		journal_close(run->journal);
	free(run->memory);
	if (run->slot >= 0) {
		group_release(run->slot);
		runs_leave_slot(run);
	}
	free(run);
}

static void group_ready(struct source *source, uint32_t events)
{
	struct run *run = (struct run *)((char *)source - offsetof(struct run, group));
	(void)events;
	run_touch(run);
}

static uint64_t bit_of(int number)
{
	return (uint64_t)1 << (number - 1);
}

/* Signals the leader (1) or the tree (2). What has no process yet gets it when it has one. */
static bool deliver(struct run *run, uint8_t target, int number)
{
	if (run->in_session)
		return run->session != NULL && deliver(run->session, 2, number);
	int pid = atomic_load(runs_pid_of(run->slot));
	if (run->launching && pid == 0) {
		*(target == 2 ? &run->pending_tree : &run->pending_leader) |= bit_of(number);
		return true;
	}
	if (target == 2) {
		group_signal(run->slot, number);
		return true;
	}
	return pid > 0 && !run->reaped && kill(pid, number) == 0;
}

static void deliver_pending(struct run *run)
{
	for (int number = 1; number <= 64; number++) {
		if ((run->pending_leader & bit_of(number)) != 0)
			deliver(run, 1, number);
		if ((run->pending_tree & bit_of(number)) != 0)
			deliver(run, 2, number);
	}
}

void run_tell_started(struct run *run)
{
	if (run->connection == NULL)
		return;
	struct frame frame = frame_begin(&run->connection->out, STARTED);
	frame_u32(&frame, (uint32_t)run->record->pid);
	frame_end(&frame);
	connection_touch(run->connection);
}

/* The launcher and the child are done with the launch: it runs, or it never will. */
void run_launched(struct run *run)
{
	source_close(&run->error);
	free(run->memory);
	run->memory = NULL;
	run->launching = false;
	if (run->failure.code != 0) {
		struct connection *connection = run->connection;
		static const char *const texts[] = {
			[8] = "the working directory cannot be entered", [9] = "no such user in the sandbox",
			[10] = "the program cannot be executed", [11] = "the sandbox cannot start another process",
		};
		uint32_t code = run->failure.code;
		const char *text = code >= 8 && code <= 11 ? texts[code] : session_refusal(run);
		if (connection != NULL) {
			connection->run = NULL;
			connection->handed = false;
			run->connection = NULL;
			connection_refuse(connection, (uint16_t)code, run->failure.error, text);
		}
		if (run->record != NULL)
			record_remove(run->record);
		run->record = NULL;
		if (run->journal != NULL)
			journal_withdraw(run->journal);
		run->journal = NULL;
	} else if (run->worker) {
		if ((run->pending_leader | run->pending_tree) != 0)
			deliver_pending(run);
	} else {
		if (!run->in_session && !run->reaped)
			run->record->pid = atomic_load(runs_pid_of(run->slot));
		/* A session has started when its shell says so. */
		if (run->shell == NULL)
			run_tell_started(run);
		if ((run->pending_leader | run->pending_tree) != 0)
			deliver_pending(run);
	}
	run_touch(run);
}

static void error_ready(struct source *source, uint32_t events)
{
	struct run *run = (struct run *)((char *)source - offsetof(struct run, error));
	struct launch_error failure;
	(void)events;
	for (;;) {
		ssize_t count = read(source->fd, &failure, sizeof(failure));
		if (count < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (count != (ssize_t)sizeof(failure)) {
			run_launched(run);
			return;
		}
		/* The end of the pipe follows; until then the launcher may still use the launch. */
		run->failure = failure;
	}
}

void run_begin(struct run *run)
{
	run->error.ready = error_ready;
	run->group = (struct source){ .fd = run->in_session ? -1 : group_events(run->slot), .ready = group_ready };
	run->launching = true;
	if (run->worker) {
		launcher_submit(&run->launch);
		return;
	}
	run->record->started = boot_ms();
	if (run->timeout_at != 0) {
		run->timeout_at += commands_ms();
		commands_alarm(run->timeout_at);
	}
	if (!run->in_session)
		run->oom_kills = runs_oom_kills();
	if (run->session != NULL)
		session_order(run);
	else
		launcher_submit(&run->launch);
	if (run->journal != NULL)
		journal_make(run->journal);
}

static uint8_t why_ended(const struct run *run)
{
	uint32_t status = run->record->status;
	if (run->timed_out)
		return BY_TIMEOUT;
	if (init_ending())
		return BY_ENDING;
	if (WIFSIGNALED(status) && (run->asked & bit_of(WTERMSIG(status))) != 0)
		return BY_SIGNAL;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && runs_oom_kills() > run->oom_kills)
		return BY_MEMORY;
	return BY_ITSELF;
}

/* Subscribers hear of every end but those that the run's own connection, which is all that waits for them, tells. */
static void announce(const struct run *run)
{
	if (run->connection == NULL || run->journal != NULL || run->shell != NULL)
		connections_announce(run->record);
}

static void send_exited(struct run *run)
{
	run->exit_sent = true;
	run->record->state = TREE_LIVES;
	if (run->connection != NULL && run->in_session && run->died_with_session) {
		struct frame frame = frame_begin(&run->connection->out, SESSION_ENDED);
		frame_end(&frame);
	}
	if (run->connection != NULL) {
		struct frame frame = frame_begin(&run->connection->out, EXITED);
		frame_u32(&frame, run->record->status);
		frame_u8(&frame, run->record->why);
		frame_u64(&frame, run->record->started);
		frame_u64(&frame, run->record->ended);
		frame_end(&frame);
		connection_touch(run->connection);
	}
	announce(run);
}

static void announce_tree(struct run *run)
{
	struct connection *connection = run->connection;
	run->tree_announced = true;
	run->record->state = ALL_ENDED;
	announce(run);
	if (connection != NULL) {
		struct frame frame = frame_begin(&connection->out, TREE_ENDED);
		frame_end(&frame);
		/* No input of a plain run can be on its way any more: the connection takes another. */
		if ((run->flags & (RUN_STDIN | RUN_TERMINAL)) != 0 || run->journal != NULL)
			connection_finish(connection);
		else
			connection->run = NULL, run->connection = NULL, connection_touch(connection);
	}
}

static void finish(struct run *run)
{
	if (run->journal != NULL) {
		run->record->journal_first = journal_first(run->journal);
		run->record->journal_end = run->journal->end;
		spare_want(boot_ms());
	}
	record_ended(run->record);
	run_free(run);
}

static void look_at_tree(struct run *run)
{
	/* What a text has started is of its session's tree; the pipes tell when nothing of it writes any more. */
	if (run->tree_empty || run->in_session)
		return;
	if (!group_populated(run->slot)) {
		run->tree_empty = true;
		source_unwatch(&run->group);
	} else if (!source_watch(&run->group, EPOLLPRI)) {
		/* Without a watch the next child to die makes us look again. */
		loop_alarm(boot_ms() + 100);
	}
}

/* Does whatever has become possible. Frees the run at its end. */
static void progress(struct run *run)
{
	if (run->launching) {
		if (run->in_session)
			streams_await(run);
		return;
	}
	if (run->reaped || run->failure.code != 0)
		look_at_tree(run);
	if (run->shell != NULL && !session_settle(run))
		return;
	if (run->failure.code != 0) {
		/* A child that reported is reaped soon; one that was never forked has no pid. */
		if ((run->reaped || atomic_load(runs_pid_of(run->slot)) == 0) && (run->tree_empty || run->in_session))
			run_free(run);
		return;
	}
	if (run->worker) {
		if (run->reaped && run->connection != NULL)
			connection_end(run->connection);
		if (run->reaped && run->tree_empty)
			run_free(run);
		return;
	}
	if (run->reaped && !run->noted) {
		run->noted = true;
		if (!run->died_with_session)
			run->record->why = why_ended(run);
		streams_note_end(run);
		if (run->shell != NULL)
			session_over(run);
	}
	if (run->journal != NULL)
		journal_settle(run->journal, boot_ms());
	streams_pump(run);
	bool drained = run->noted && run->output.owed == 0 && run->errors.owed == 0;
	bool closed = (run->tree_empty || run->in_session) && run->output.source.fd < 0 && run->errors.source.fd < 0;
	bool written = run->journal == NULL || journal_ends(run, drained, closed);
	/* The ends of leader and tree are facts that do not wait for a disk that refuses to take their records. */
	bool refused = run->journal != NULL && run->journal->pending != NULL;
	if (!run->exit_sent && (drained || (run->noted && refused)))
		send_exited(run);
	if (!run->tree_announced && run->exit_sent && (closed || (run->tree_empty && refused)))
		announce_tree(run);
	if (run->tree_announced && closed && written)
		finish(run);
}

bool runs_round(void)
{
	bool any = touched != NULL;
	while (touched != NULL) {
		struct run *run = touched;
		touched = run->next_touched;
		run->touched = false;
		progress(run);
	}
	return any;
}

void run_ended(struct run *run, uint32_t status)
{
	run->reaped = true;
	if (run->record != NULL) {
		run->record->status = status;
		run->record->ended = boot_ms();
	}
	run_touch(run);
}

void runs_reap(void)
{
	int status;
	pid_t pid;
	bool orphans = false;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct run *run = runs_take_pid(pid);
		if (run == NULL) {
			orphans = true;
			continue;
		}
		if (run->record != NULL)
			run->record->pid = pid;
		run_ended(run, (uint32_t)status);
	}
	/* An orphan that died may have been the last of a tree whose watch could not be set. */
	for (struct run *run = orphans ? runs_next(NULL) : NULL; run != NULL; run = runs_next(run))
		if (run->reaped && !run->group.watched)
			run_touch(run);
}

bool run_signal(struct run *run, uint8_t target, uint8_t number)
{
	if (number < 1 || number > 64)
		return false;
	/* A text that is answered has nothing of its own any more: what its session runs by now is somebody else's. */
	if (run->in_session && run->reaped)
		return false;
	run->asked |= bit_of(number);
	if (run->in_session && run->session != NULL)
		run->session->asked |= bit_of(number);
	return deliver(run, target, number);
}

void runs_signal_all(uint8_t number, bool asked)
{
	for (struct run *run = runs_next(NULL); run != NULL; run = runs_next(run)) {
		/* Files are served until the sandbox ends, or until a KILL of everything in the group. */
		if (run->in_session || (asked && run->worker))
			continue;
		if (asked)
			run->asked |= bit_of(number);
		deliver(run, 2, number);
	}
}

bool run_resize(struct run *run, uint16_t columns, uint16_t rows)
{
	struct winsize size = { .ws_col = columns, .ws_row = rows };
	return (run->flags & RUN_TERMINAL) != 0 && run->output.source.fd >= 0 && ioctl(run->output.source.fd, TIOCSWINSZ, &size) == 0;
}

void run_detach(struct run *run)
{
	run->connection = NULL;
	if (run->journal != NULL)
		return;
	if (run->worker) {
		/* It sees the end itself and tidies up; what does not end by itself is ended. */
		run->kill_at = commands_ms() + WORKER_END_MS;
		commands_alarm(run->kill_at);
		return;
	}
	if ((run->flags & RUN_KILL_ON_END) != 0 && !run->exit_sent)
		run_signal(run, 2, SIGKILL);
	/* Nobody is left who could send input; a terminal's one descriptor serves both ways and stays. */
	buffer_free(&run->held);
	source_close(&run->input);
	run_touch(run);
}

void runs_leave(const struct connection *connection)
{
	for (struct run *run = runs_next(NULL); run != NULL; run = runs_next(run)) {
		if (run->journal == NULL)
			continue;
		journal_leave(run->journal, connection);
		input_leave(run, connection);
	}
}

void runs_alarm(void)
{
	uint64_t now = commands_ms();
	for (struct run *run = runs_next(NULL); run != NULL; run = runs_next(run)) {
		if (run->timeout_at != 0 && run->reaped)
			run->timeout_at = 0;
		if (run->timeout_at != 0 && now >= run->timeout_at) {
			run->timeout_at = 0;
			run->timed_out = true;
			if (run->in_session) {
				/* Nothing may run in a shell that was left in the middle of something: the session ends. */
				if (run->session != NULL)
					run->session->timed_out = true;
				deliver(run, 2, SIGKILL);
			} else {
				run->kill_at = now + run->grace;
				deliver(run, 2, SIGTERM);
			}
		}
		if (run->kill_at != 0 && now >= run->kill_at) {
			run->kill_at = 0;
			deliver(run, 2, SIGKILL);
		}
		commands_alarm(run->timeout_at);
		commands_alarm(run->kill_at);
		session_alarm(run, now);
		run_touch(run);
	}
}

bool run_frame(struct connection *connection, uint8_t type, const uint8_t *body, size_t length)
{
	struct run *run = connection->run;
	if (run == NULL) {
		bool malformed = false;
		if (type != RUN)
			return false;
		run = run_prepare(connection, body, length, &malformed);
		if (run != NULL)
			run_begin(run);
		return !malformed;
	}
	if (type == STDIN_END && length == 0) {
		streams_end_input(run);
		return true;
	}
	if (type == SIGNAL_RUN && length == 2 && (body[0] == 1 || body[0] == 2) && body[1] >= 1 && body[1] <= 64) {
		run_signal(run, body[0], body[1]);
		return true;
	}
	return false;
}
