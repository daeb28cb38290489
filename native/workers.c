/* See workers.h. */
#include "workers.h"

#include "groups.h"
#include "init.h"
#include "runs.h"
#include "streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKER = 70 };
enum tag { TAG_USER = 5, TAG_FLAGS = 6, TAG_TOKEN = 9, TAG_GENERATION = 10 };

struct wish {
	struct field user;
	bool has_token, has_generation;
	uint32_t flags;
	uint64_t token, generation;
};

static bool parse(const uint8_t *body, size_t length, struct wish *wish)
{
	struct fields fields = { .at = body, .end = body + length };
	struct field field;
	int more;
	*wish = (struct wish){ 0 };
	while ((more = fields_next(&fields, &field)) > 0) {
		if (field.tag == TAG_USER && field_is_text(&field)) {
			wish->user = field;
		} else if (field.tag == TAG_FLAGS && field.length == 4) {
			wish->flags = get_u32(field.bytes);
		} else if (field.tag == TAG_TOKEN && field.length == 8) {
			wish->token = get_u64(field.bytes);
			wish->has_token = true;
		} else if (field.tag == TAG_GENERATION && field.length == 8) {
			wish->generation = get_u64(field.bytes);
			wish->has_generation = true;
		} else {
			return false;
		}
	}
	return more == 0;
}

/* true: refused, and said so. */
static bool refused(struct connection *connection, const struct wish *wish)
{
	if ((wish->flags & ~(uint32_t)RUN_CHECK_TOKEN) != 0)
		connection_refuse(connection, 1, EINVAL, "the flags are not possible");
	else if (init_ending())
		connection_refuse(connection, 6, 0, "the sandbox is ending");
	else if (wish->has_generation && wish->generation != sandbox.generation)
		connection_refuse(connection, 7, 0, "another generation of the sandbox runs");
	else if (sandbox.fence != 0 && (wish->flags & RUN_CHECK_TOKEN) != 0 && (!wish->has_token || wish->token != sandbox.fence))
		connection_refuse(connection, 5, 0, "the lease token is not the current one");
	else
		return false;
	return true;
}

static bool open_descriptors(struct run *run, int connection)
{
	int error[2];
	if (pipe2(error, O_CLOEXEC) < 0)
		return false;
	run->error.fd = error[0];
	run->launch.error = error[1];
	/* 1 and 2 become /dev/null like 0; the connection becomes 3. */
	run->launch.output = run->launch.errors = fcntl(0, F_DUPFD_CLOEXEC, 4);
	run->launch.script = fcntl(connection, F_DUPFD_CLOEXEC, 4);
	return run->launch.output >= 0 && run->launch.script >= 0 && fcntl(error[0], F_SETFL, O_NONBLOCK) == 0;
}

static void close_descriptors(const struct launch *launch)
{
	if (launch->error >= 0)
		close(launch->error);
	if (launch->output >= 0)
		close(launch->output);
	if (launch->script >= 0)
		close(launch->script);
}

/* Nothing was launched: gives everything back and says why. */
static void withdraw(struct run *run, uint16_t code, uint32_t error, const char *text)
{
	struct connection *connection = run->connection;
	close_descriptors(&run->launch);
	connection->handed = false;
	run_free(run);
	connection_refuse(connection, code, error, text);
}

static const char *prepare(struct run *run, const struct wish *wish, int connection)
{
	if (runs_take_slot(run) < 0)
		return "too many runs";
	if ((run->launch.group = group_open(run->slot)) < 0)
		return "no cgroup for the worker";
	/* The user's name, and room for what was read beyond the frame. */
	char *memory = malloc((size_t)wish->user.length + 1);
	run->memory = memory;
	if (memory == NULL)
		return "init has no memory left";
	if (wish->user.length > 0)
		memcpy(memory, wish->user.bytes, wish->user.length);
	memory[wish->user.length] = 0;
	run->launch.user = memory;
	if (!open_descriptors(run, connection))
		return "no descriptor left";
	return source_watch(&run->error, EPOLLIN) ? NULL : "the kernel refuses another watch";
}

bool worker_frame(struct connection *connection, uint8_t type, const uint8_t *body, size_t length)
{
	struct wish wish;
	if (type != WORKER || !parse(body, length, &wish))
		return false;
	if (refused(connection, &wish))
		return true;
	struct run *run = calloc(1, sizeof(*run));
	if (run == NULL) {
		connection_refuse(connection, 3, ENOMEM, "init has no memory left");
		return true;
	}
	run->slot = -1;
	run->worker = true;
	run->error.fd = run->group.fd = -1;
	run->launch = (struct launch){ .input = -1, .output = -1, .errors = -1, .script = -1, .error = -1, .line = -1, .directory = "/", .worker = true };
	streams_open(run, -1, -1, -1);
	errno = 0;
	const char *problem = prepare(run, &wish, connection->source.fd);
	/* The greeting goes before anything the worker says. */
	if (problem == NULL && !connection_flush(connection))
		problem = "the client does not read";
	run->connection = connection;
	if (problem != NULL) {
		withdraw(run, 3, (uint32_t)errno, problem);
		return true;
	}
	run->launch.pid = runs_pid_of(run->slot);
	connection->run = run;
	connection->handed = true;
	return true;
}

void worker_begin(struct connection *connection, const uint8_t *early, size_t count)
{
	struct run *run = connection->run;
	if (count > 0) {
		/* The child sees init's memory as it was at the fork; this stays until the error pipe ends. */
		size_t user = strlen(run->launch.user) + 1;
		uint8_t *memory = realloc(run->memory, user + count);
		if (memory == NULL) {
			withdraw(run, 3, ENOMEM, "init has no memory left");
			return;
		}
		memcpy(memory + user, early, count);
		run->memory = memory;
		run->launch.user = (char *)memory;
		run->launch.early = memory + user;
		run->launch.early_count = count;
	}
	run_begin(run);
}
