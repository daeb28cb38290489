/*
 * The control connection: every request is answered at once with the same number, and none of them waits.
 *
 * Always true: a request either has its whole effect or none; ERROR says why.
 */
#include "control.h"

#include "groups.h"
#include "init.h"
#include "input.h"
#include "records.h"
#include "runs.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

enum {
	OK = 20, ERROR, STATUS, STATUS_IS, LIST, RUN_IS, SIGNAL, RESIZE, DEADLINE, FENCE, FORGET, SHUTDOWN, SUBSCRIBE,
	EVENT, FOLLOW, INPUT, JOURNAL_IS, JOURNAL_STATE,
};

struct question {
	struct connection *connection;
	uint32_t number;
};

static struct frame answer(struct question question, uint8_t type)
{
	struct frame frame = frame_begin(&question.connection->out, type);
	frame_u32(&frame, question.number);
	return frame;
}

static bool ok(struct question question)
{
	struct frame frame = answer(question, OK);
	return frame_end(&frame);
}

static bool error(struct question question, uint16_t code, uint32_t number, const char *text)
{
	struct frame frame = answer(question, ERROR);
	frame_u16(&frame, code);
	frame_u32(&frame, number);
	frame_bytes(&frame, text, strlen(text));
	return frame_end(&frame);
}

static bool no_such_run(struct question question)
{
	return error(question, 4, 0, "no such run");
}

static bool status(struct question question)
{
	struct frame frame = answer(question, STATUS_IS);
	frame_u64(&frame, sandbox.generation);
	frame_u64(&frame, sandbox.deadline);
	frame_u64(&frame, sandbox.fence);
	frame_u32(&frame, runs_of_commands());
	frame_u32(&frame, records_kept());
	frame_u64(&frame, boot_ms());
	return frame_end(&frame);
}

static void list_one(const struct record *record, void *context)
{
	const struct question *question = context;
	struct frame frame = answer(*question, RUN_IS);
	record_fields(&frame, record);
	frame_end(&frame);
}

/* `u8 length` and an id at the end of a body: false when it does not fit exactly. */
static bool named_run(const uint8_t *at, size_t left, struct record **record)
{
	if (left < 1 || left - 1 != at[0])
		return false;
	*record = record_find((const char *)at + 1, at[0]);
	return true;
}

/* As a key of the terminal would, whatever mode it is in and whatever input waits: the kernel takes INT, QUIT and TSTP here. */
static bool signal_foreground(const struct run *run, uint8_t number)
{
	return (run->flags & RUN_TERMINAL) != 0 && run->output.source.fd >= 0 && ioctl(run->output.source.fd, TIOCSIG, (long)number) == 0;
}

static bool signal_run(struct question question, const uint8_t *body, size_t length)
{
	struct record *record;
	if (length < 3 || !named_run(body + 2, length - 2, &record) || body[0] < 1 || body[0] > 4)
		return false;
	if (body[1] < 1 || body[1] > 64)
		return error(question, 1, EINVAL, "a signal is 1 to 64");
	if (body[0] == 3) {
		runs_signal_all(body[1], true);
		if (body[1] == SIGKILL)
			groups_kill_all();
		return ok(question);
	}
	struct run *run = record != NULL ? run_of(record) : NULL;
	if (run == NULL)
		return no_such_run(question);
	if (body[0] == 4)
		return signal_foreground(run, body[1]) ? ok(question) : error(question, 1, EINVAL, "no terminal, or a signal that it has no key for");
	if (!run_signal(run, body[0], body[1]))
		return error(question, 4, ESRCH, "the leader has ended");
	return ok(question);
}

static bool resize(struct question question, const uint8_t *body, size_t length)
{
	struct record *record;
	if (length < 5 || !named_run(body + 4, length - 4, &record))
		return false;
	struct run *run = record != NULL ? run_of(record) : NULL;
	if (run == NULL)
		return no_such_run(question);
	if (!run_resize(run, get_u16(body), get_u16(body + 2)))
		return error(question, 1, ENOTTY, "the run has no terminal");
	return ok(question);
}

static bool deadline(struct question question, uint64_t at)
{
	if (init_ending())
		return error(question, 6, 0, "the sandbox is ending");
	sandbox.deadline = at;
	loop_alarm(at);
	return ok(question);
}

static bool fence(struct question question, uint64_t token)
{
	if (token < sandbox.fence)
		return error(question, 5, 0, "init has a newer lease token");
	sandbox.fence = token;
	return ok(question);
}

static bool forget(struct question question, const uint8_t *body, size_t length)
{
	struct record *record;
	if (!named_run(body, length, &record))
		return false;
	if (record == NULL || record->slot >= 0)
		return no_such_run(question);
	record_remove(record);
	return ok(question);
}

/* Whose journal is asked for: the run while anything of it is left to write, or the record of an ended one. */
static bool has_journal(struct question question, const struct record *record, struct run **run)
{
	*run = record != NULL ? run_of(record) : NULL;
	if (record == NULL)
		no_such_run(question);
	else if (!record->journal)
		error(question, 1, EINVAL, "the run has no journal");
	return record != NULL && record->journal;
}

static bool follow(struct question question, const uint8_t *body, size_t length)
{
	struct record *record;
	struct run *run;
	uint32_t number = 0;
	if (length < 9 || length < (size_t)9 + body[8])
		return false;
	if (length == (size_t)9 + body[8] + 4)
		number = get_u32(body + length - 4), length -= 4;
	if (!named_run(body + 8, length - 8, &record))
		return false;
	if (!has_journal(question, record, &run))
		return true;
	uint64_t offset = get_u64(body), end = run != NULL ? run->journal->end : record->journal_end;
	if (offset > end)
		return error(question, 1, ERANGE, "the journal ends before that");
	bool answered = run == NULL || end > offset || journal_holds(run) == ALL_ENDED;
	if (run != NULL && !journal_follow(run->journal, question.connection, question.number, number, offset, answered))
		return error(question, 3, ENOMEM, "too many followers");
	if (run != NULL)
		run_touch(run); /* A hold may have moved on. */
	return answered ? ok(question) : true;
}

static bool input(struct question question, const uint8_t *body, size_t length)
{
	struct record *record;
	struct run *run;
	if (length < 9 || length < (size_t)9 + body[8] || length - 9 - body[8] > JOURNAL_CHUNK)
		return false;
	record = record_find((const char *)body + 9, body[8]);
	if (!has_journal(question, record, &run))
		return true;
	if (run == NULL)
		return error(question, 4, 0, "the run has ended");
	const uint8_t *bytes = body + 9 + body[8];
	input_offer(run, question.connection, question.number, get_u64(body), bytes, length - 9 - body[8]);
	return true;
}

static bool journal_state(struct question question, const uint8_t *body, size_t length)
{
	struct record *record;
	struct run *run;
	if (!named_run(body, length, &record))
		return false;
	if (!has_journal(question, record, &run))
		return true;
	struct frame frame = answer(question, JOURNAL_IS);
	frame_u64(&frame, run != NULL ? journal_first(run->journal) : record->journal_first);
	frame_u64(&frame, run != NULL ? run->journal->end : record->journal_end);
	frame_u8(&frame, (uint8_t)(run != NULL ? journal_holds(run) : ALL_ENDED));
	return frame_end(&frame);
}

void control_answer(struct connection *connection, uint32_t request)
{
	ok((struct question){ connection, request });
	connection_touch(connection);
}

void control_refuse(struct connection *connection, uint32_t request, uint16_t code, uint32_t number, const char *text)
{
	error((struct question){ connection, request }, code, number, text);
	connection_touch(connection);
}

bool control_frame(struct connection *connection, uint8_t type, const uint8_t *body, size_t length)
{
	if (length < 4)
		return false;
	struct question question = { connection, get_u32(body) };
	connection_touch(connection);
	body += 4;
	length -= 4;
	switch (type) {
	case STATUS: return length == 0 && status(question);
	case LIST:
		if (length != 0)
			return false;
		records_each(list_one, &question);
		return ok(question);
	case SIGNAL: return signal_run(question, body, length);
	case RESIZE: return resize(question, body, length);
	case DEADLINE: return length == 8 && deadline(question, get_u64(body));
	case FENCE: return length == 8 && fence(question, get_u64(body));
	case FORGET: return forget(question, body, length);
	case SHUTDOWN:
		if (length != 4)
			return false;
		init_end("shutdown", get_u32(body));
		return ok(question);
	case FOLLOW: return follow(question, body, length);
	case INPUT: return input(question, body, length);
	case JOURNAL_STATE: return journal_state(question, body, length);
	case SUBSCRIBE:
		if (length != 0)
			return false;
		connection->subscribed = true;
		return ok(question);
	default: return false;
	}
}
