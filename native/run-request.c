/*
 * The RUN frame: parsed, checked against the sandbox's generation, fence and limits, and turned into a launch with its
 * pipes or terminal.
 *
 * Always true: until run_prepare returns a run, nothing of the request is left behind; a refusal has been sent, or
 * `*malformed` is set.
 */
#include "groups.h"
#include "init.h"
#include "run-request.h"
#include "runs.h"
#include "sessions.h"
#include "streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define TIMEOUT_MAX ((uint64_t)1 << 50)
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

static bool parse_field(const struct field *field, struct wish *wish)
{
	switch (field->tag) {
	case TAG_RUN: wish->id = *field; return field_is_text(field);
	case TAG_ARG: wish->argument_count++; break;
	case TAG_ENV: wish->environment_count++; break;
	case TAG_UNSET: wish->unset_count++; break;
	case TAG_SESSION: wish->session = *field; wish->has_session = true; return field_is_text(field);
	case TAG_CWD: wish->directory = *field; break;
	case TAG_USER: wish->user = *field; break;
	case TAG_FLAGS: wish->flags = field->length == 4 ? get_u32(field->bytes) : 0; return field->length == 4;
	case TAG_TIMEOUT: wish->timeout = field->length == 8 ? get_u64(field->bytes) : 0; return field->length == 8;
	case TAG_GRACE: wish->grace = field->length == 4 ? get_u32(field->bytes) : 0; return field->length == 4;
	case TAG_TOKEN: wish->has_token = true; wish->token = field->length == 8 ? get_u64(field->bytes) : 0; return field->length == 8;
	case TAG_GENERATION: wish->has_generation = true; wish->generation = field->length == 8 ? get_u64(field->bytes) : 0; return field->length == 8;
	case TAG_SIZE:
		if (field->length != 4)
			return false;
		wish->columns = get_u16(field->bytes);
		wish->rows = get_u16(field->bytes + 2);
		return true;
	case TAG_SCRIPT: wish->script = *field; wish->has_script = true; return true;
	case TAG_JOURNAL: wish->journal = *field; wish->has_journal = true; return field_is_text(field);
	case TAG_JOURNAL_LIMIT: wish->journal_limit = field->length == 8 ? get_u64(field->bytes) : 0; return field->length == 8;
	default: return false;
	}
	wish->text_bytes += (size_t)field->length + 1;
	return field_is_text(field);
}

struct fields run_fields(const uint8_t *body, size_t length)
{
	return (struct fields){ .at = body, .end = body + length, .repeatable = 1u << TAG_ARG | 1u << TAG_ENV | 1u << TAG_UNSET };
}

static bool parse(const uint8_t *body, size_t length, struct wish *wish)
{
	struct fields fields = run_fields(body, length);
	struct field field;
	int more;
	*wish = (struct wish){ .grace = 1000, .journal_limit = JOURNAL_LIMIT_DEFAULT };
	while ((more = fields_next(&fields, &field)) > 0)
		if (!parse_field(&field, wish))
			return false;
	const uint64_t required = 1u << TAG_RUN | (wish->has_session ? 0 : 1u << TAG_ARG);
	return more == 0 && (fields.seen & required) == required;
}

static bool id_valid(const struct field *id)
{
	if (id->length < 1 || id->length > RUN_ID_MAX)
		return false;
	for (uint32_t i = 0; i < id->length; i++) {
		uint8_t c = id->bytes[i];
		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-'))
			return false;
	}
	return true;
}

static bool journal_valid(const struct wish *wish)
{
	if (!wish->has_journal)
		return true;
	if (wish->journal.length < 1 || wish->journal.length > JOURNAL_NAME_MAX)
		return false;
	for (uint32_t i = 0; i < wish->journal.length; i++) {
		uint8_t c = wish->journal.bytes[i];
		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')))
			return false;
	}
	return wish->journal_limit >= JOURNAL_LIMIT_MIN && wish->journal_limit <= JOURNAL_LIMIT_MAX;
}

/* Whether what a session, or a run in one, asks for goes together. */
static bool session_valid(const struct wish *wish)
{
	bool forks = (wish->flags & RUN_FORK) != 0, keeps = (wish->flags & RUN_KEEP_VARIABLES) != 0;
	if ((wish->flags & RUN_SESSION) != 0)
		return !wish->has_session && !wish->has_script && !wish->has_journal && wish->unset_count == 0 && !forks && !keeps &&
		       (wish->flags & (RUN_TERMINAL | RUN_STDIN | RUN_DETACH)) == 0;
	if (!wish->has_session)
		return !forks && !keeps && wish->unset_count == 0 && (wish->flags & RUN_DETACH) == 0;
	return wish->argument_count == 0 && wish->user.length == 0 && (wish->flags & RUN_TERMINAL) == 0 && forks == wish->has_journal &&
	       wish->has_script != keeps && !(keeps && (forks || (wish->flags & RUN_STDIN) != 0 || wish->directory.length > 0)) &&
	       (forks || (wish->flags & RUN_DETACH) == 0);
}

/* true: refused, and said so. */
static bool refused(struct connection *connection, const struct wish *wish)
{
	if (!id_valid(&wish->id) || (wish->flags & ~(uint32_t)RUN_FLAGS_KNOWN) != 0 || wish->timeout > TIMEOUT_MAX) {
		connection_refuse(connection, 1, EINVAL, "the operation id, flags or timeout is not possible");
		return true;
	}
	if (!journal_valid(wish)) {
		connection_refuse(connection, 1, EINVAL, "the name or the limit of the journal is not possible");
		return true;
	}
	if (!session_valid(wish)) {
		connection_refuse(connection, 1, EINVAL, "not possible in or for a session");
		return true;
	}
	if (init_ending()) {
		connection_refuse(connection, 6, 0, "the sandbox is ending");
		return true;
	}
	if (wish->has_generation && wish->generation != sandbox.generation) {
		connection_refuse(connection, 7, 0, "another generation of the sandbox runs");
		return true;
	}
	if (sandbox.fence != 0 && (wish->flags & RUN_CHECK_TOKEN) != 0 && (!wish->has_token || wish->token != sandbox.fence)) {
		connection_refuse(connection, 5, 0, "the lease token is not the current one");
		return true;
	}
	const struct record *earlier = record_find((const char *)wish->id.bytes, wish->id.length);
	if (earlier != NULL) {
		char state[8];
		snprintf(state, sizeof(state), "%u", earlier->state);
		connection_refuse(connection, 2, EEXIST, state);
		return true;
	}
	return false;
}

static char *copy_text(char **room, const struct field *field)
{
	char *text = *room;
	memcpy(text, field->bytes, field->length);
	text[field->length] = 0;
	*room += (size_t)field->length + 1;
	return text;
}

/* One allocation for all strings and both vectors. */
static bool copy_strings(struct run *run, const struct wish *wish, const uint8_t *body, size_t length)
{
	size_t pointers = wish->argument_count + wish->environment_count + 2;
	char **vector = malloc(pointers * sizeof(char *) + wish->text_bytes);
	if (vector == NULL)
		return false;
	char *room = (char *)(vector + pointers);
	struct fields fields = run_fields(body, length);
	struct field field;
	size_t argument = 0, variable = 0;
	run->memory = vector;
	run->launch.arguments = vector;
	run->launch.environment = vector + wish->argument_count + 1;
	while (fields_next(&fields, &field) > 0) {
		if (field.tag == TAG_ARG)
			run->launch.arguments[argument++] = copy_text(&room, &field);
		if (field.tag == TAG_ENV)
			run->launch.environment[variable++] = copy_text(&room, &field);
	}
	run->launch.arguments[argument] = NULL;
	run->launch.environment[variable] = NULL;
	run->launch.directory = wish->directory.length > 0 ? copy_text(&room, &wish->directory) : "/";
	run->launch.user = wish->user.length > 0 ? copy_text(&room, &wish->user) : "";
	return true;
}

static bool open_terminal(struct run *run, const struct wish *wish)
{
	struct winsize size = { .ws_col = wish->columns, .ws_row = wish->rows };
	int unlocked = 0;
	int master = openat(sandbox.terminals, "ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (master < 0)
		return false;
	streams_open(run, master, -1, -1);
	if (ioctl(master, TIOCSPTLCK, &unlocked) < 0 || (size.ws_col != 0 && ioctl(master, TIOCSWINSZ, &size) < 0))
		return false;
	/* Through the master itself: a path could lead anywhere by now. */
	int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	run->launch.input = run->launch.output = run->launch.errors = slave;
	run->launch.terminal = true;
	return slave >= 0;
}

bool run_open_pipe(int ends[2], int ours)
{
	if (pipe2(ends, O_CLOEXEC) < 0) {
		ends[0] = ends[1] = -1;
		return false;
	}
	return fcntl(ends[ours], F_SETFL, O_NONBLOCK) == 0;
}

static bool open_pipes(struct run *run)
{
	int output[2], errors[2] = { -1, -1 }, input[2] = { -1, -1 };
	bool opened = run_open_pipe(output, 0) && run_open_pipe(errors, 0) && ((run->flags & RUN_STDIN) == 0 || run_open_pipe(input, 1));
	streams_open(run, output[0], errors[0], input[1]);
	run->launch.output = output[1];
	run->launch.errors = errors[1];
	run->launch.input = input[0];
	return opened;
}

static bool open_script(struct run *run, const struct field *script)
{
	int file = memfd_create("script", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (file < 0 && errno == EINVAL)
		file = memfd_create("script", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file < 0)
		return false;
	run->launch.script = file;
	for (size_t done = 0; done < script->length;) {
		ssize_t count = write(file, script->bytes + done, script->length - done);
		if (count <= 0)
			return false;
		done += (size_t)count;
	}
	return lseek(file, 0, SEEK_SET) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0;
}

static bool open_descriptors(struct run *run, const struct wish *wish)
{
	int error[2];
	if (!((run->flags & RUN_TERMINAL) != 0 ? open_terminal(run, wish) : open_pipes(run)))
		return false;
	if (wish->has_script && !open_script(run, &wish->script))
		return false;
	bool opened = run_open_pipe(error, 0);
	run->error.fd = error[0];
	run->launch.error = error[1];
	return opened;
}

static void close_launch(struct launch *launch)
{
	if (launch->input == launch->output)
		launch->input = -1;
	if (launch->errors == launch->output)
		launch->errors = -1;
	int *const descriptors[] = { &launch->input, &launch->output, &launch->errors, &launch->script, &launch->line, &launch->error };
	for (size_t i = 0; i < sizeof(descriptors) / sizeof(descriptors[0]); i++) {
		if (*descriptors[i] >= 0)
			close(*descriptors[i]);
		*descriptors[i] = -1;
	}
}

/* NULL, or what is the problem, with its code. */
static const char *prepare(struct run *run, const struct wish *wish, const uint8_t *body, size_t length, uint16_t *code)
{
	const char *problem = NULL;
	*code = 3;
	if (runs_take_slot(run) < 0)
		return "too many runs";
	if (!run->in_session && (run->launch.group = group_open(run->slot)) < 0)
		return "no cgroup for the run";
	if (run->session != NULL) {
		if ((wish->flags & RUN_KEEP_VARIABLES) == 0 && !open_pipes(run))
			return "no descriptor left";
		problem = session_compose(run, wish, body, length, code);
	} else {
		if (!copy_strings(run, wish, body, length))
			return "init has no memory left";
		if (run->launch.arguments[0][0] == 0)
			return *code = 1, "the first argument is empty";
		if (!open_descriptors(run, wish))
			return "no descriptor or terminal left";
		if ((wish->flags & RUN_SESSION) != 0)
			problem = session_open(run);
		if (problem == NULL && !source_watch(&run->error, EPOLLIN))
			problem = "the kernel refuses another watch";
	}
	if (problem != NULL)
		return problem;
	if (wish->has_journal && (run->journal = journal_open((const char *)wish->journal.bytes, wish->journal.length, wish->journal_limit)) == NULL)
		return *code = 12, "there is a journal of that name";
	run->record = record_add((const char *)wish->id.bytes, wish->id.length, run->slot);
	return run->record == NULL ? "init has no memory left" : NULL;
}

struct run *run_prepare(struct connection *connection, const uint8_t *body, size_t length, bool *malformed)
{
	struct wish wish;
	if (!parse(body, length, &wish)) {
		*malformed = true;
		return NULL;
	}
	if (refused(connection, &wish))
		return NULL;
	struct run *session = wish.has_session ? session_named(connection, &wish) : NULL;
	if (wish.has_session && session == NULL)
		return NULL;
	struct run *run = calloc(1, sizeof(*run));
	if (run == NULL) {
		connection_refuse(connection, 3, ENOMEM, "init has no memory left");
		return NULL;
	}
	run->slot = -1;
	run->flags = wish.flags;
	run->grace = wish.grace;
	run->timeout_at = wish.timeout;
	run->error.fd = run->group.fd = -1;
	run->launch = (struct launch){ .input = -1, .output = -1, .errors = -1, .script = -1, .error = -1, .line = -1 };
	run->session = session;
	run->in_session = session != NULL && (wish.flags & RUN_FORK) == 0;
	streams_open(run, -1, -1, -1);

	errno = 0;
	uint16_t code;
	const char *problem = prepare(run, &wish, body, length, &code);
	if (problem != NULL) {
		uint32_t error = (uint32_t)errno;
		close_launch(&run->launch);
		if (run->journal != NULL)
			journal_withdraw(run->journal);
		run->journal = NULL;
		run_free(run);
		connection_refuse(connection, code, error, problem);
		return NULL;
	}
	run->launch.pid = runs_pid_of(run->slot);
	run->record->journal = run->journal != NULL;
	run->record->kind = run->shell != NULL ? KIND_SESSION : session == NULL ? KIND_PLAIN_RUN : run->in_session ? KIND_IN_SESSION : KIND_FROM_SESSION;
	run->record->session = session != NULL ? session->record : NULL;
	run->connection = connection;
	connection->run = run;
	return run;
}
