/*
 * What a RUN that is a session, or runs in one, is made of: the object and the line of a shell, or an order for it.
 *
 * Always true: nothing is sent or started here; what cannot be done is said, and the caller gives everything back.
 */
#include "sessions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

#define ABOVE_LINE (SESSION_LINE + 1)

__asm__(".section .rodata\n"
	".balign 16\n"
	"session_object:\n"
	".incbin " "\"" SESSION_OBJECT_FILE "\"" "\n"
	"session_object_end:\n"
	".previous\n");
extern const uint8_t session_object[] __asm__("session_object"), session_object_end[] __asm__("session_object_end");

/* Sealed, and so the same for every shell that gets it. */
static int sealed_file(const char *name, const void *bytes, size_t size)
{
	int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (file < 0 && errno == EINVAL)
		file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file < 0)
		return -1;
	if (write(file, bytes, size) != (ssize_t)size || fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0) {
		close(file);
		return -1;
	}
	return file;
}

/* One more open file of what one of our own descriptors leads to; not a path of the sandbox. */
static int open_again(int descriptor, int flags)
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
	return open(path, flags | O_CLOEXEC);
}

static int above_line(int descriptor)
{
	int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, ABOVE_LINE);
	close(descriptor);
	return moved;
}

/*
 * The shell reads one line from its input, as from any script, and is ours then: unlike `bash -c` it has no text that could be seen, and ends
 * as a script does.
 */
const char *session_open(struct run *run)
{
	static const char line[] = "enable -f /proc/self/fd/3 atoll_session\n";
	static int object = -1, script = -1;
	int pair[2];
	struct shell *shell = calloc(1, sizeof(*shell));
	if (shell == NULL)
		return "init has no memory left";
	run->shell = shell;
	*shell = (struct shell){ .line = { .fd = -1 }, .run = run };
	if (object < 0)
		object = sealed_file("session", session_object, (size_t)(session_object_end - session_object));
	if (script < 0)
		script = sealed_file("line", line, sizeof(line) - 1);
	if (object < 0 || script < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return "no descriptor left";
	shell->line.fd = pair[0];
	run->launch.line = above_line(pair[1]);
	run->launch.error = above_line(run->launch.error);
	run->launch.script = fcntl(object, F_DUPFD_CLOEXEC, ABOVE_LINE);
	run->launch.input = open_again(script, O_RDONLY);
	/* What its 0, 1 and 2 lead to between commands: an open file that nobody else has, because it is marked. */
	source_close(&run->output.source);
	close(run->launch.output);
	run->launch.output = open_again(0, O_RDWR);
	if (run->launch.line < 0 || run->launch.error < 0 || run->launch.script < 0 || run->launch.input < 0 || run->launch.output < 0)
		return "no descriptor left";
	return NULL;
}

struct run *session_named(struct connection *connection, const struct wish *wish)
{
	const struct record *record = record_find((const char *)wish->session.bytes, wish->session.length);
	if (record == NULL || record->kind != KIND_SESSION) {
		connection_refuse(connection, 4, 0, "no such session");
		return NULL;
	}
	struct run *run = run_of(record);
	if (run == NULL || run->shell == NULL || run->reaped || run->shell->line.fd < 0) {
		connection_refuse(connection, 17, 0, "the session has ended");
		return NULL;
	}
	if (!run->shell->ready || run->shell->current != NULL || run->shell->owed) {
		connection_refuse(connection, 16, EBUSY, "the session is busy");
		return NULL;
	}
	return run;
}

static uint8_t *add(uint8_t *at, const struct field *field)
{
	memcpy(at, field->bytes, field->length);
	at[field->length] = 0;
	return at + field->length + 1;
}

/* A name of a shell variable, up to its `=` or the end. */
static bool name_valid(const struct field *field)
{
	uint32_t length = 0;
	for (; length < field->length && field->bytes[length] != '='; length++) {
		uint8_t c = field->bytes[length];
		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (length > 0 && c >= '0' && c <= '9')))
			return false;
	}
	return length > 0 && (field->tag == TAG_UNSET) == (length == field->length);
}

static bool names_valid(const uint8_t *body, size_t length, size_t *bytes)
{
	struct fields fields = run_fields(body, length);
	struct field field;
	*bytes = 0;
	while (fields_next(&fields, &field) > 0) {
		if (field.tag != TAG_ENV && field.tag != TAG_UNSET)
			continue;
		if (!name_valid(&field))
			return false;
		*bytes += (size_t)field.length + 1;
	}
	return true;
}

static bool open_birth(struct run *run)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	run->launch.script = pair[1];
	return birth_open(run, pair[0]);
}

const char *session_compose(struct run *run, const struct wish *wish, const uint8_t *body, size_t length, uint16_t *code)
{
	size_t variables, directory = wish->directory.length > 0 ? (size_t)wish->directory.length + 1 : 0;
	*code = 1;
	if (wish->environment_count + wish->unset_count > ORDER_VARIABLES_MAX)
		return "too many variables for one command";
	if (!names_valid(body, length, &variables))
		return "a variable whose name no shell takes";
	if (memchr(wish->script.bytes, 0, wish->script.length) != NULL)
		return "a text with a NUL";
	*code = 3;
	size_t total = sizeof(struct session_order) + directory + variables + wish->script.length + 1;
	uint8_t *memory = malloc(total), *at = memory + sizeof(struct session_order);
	if (memory == NULL)
		return "init has no memory left";
	run->memory = memory;
	run->order_bytes = total;
	struct session_order head = {
		.kind = (wish->flags & RUN_FORK) != 0 ? ORDER_FORK : (wish->flags & RUN_KEEP_VARIABLES) != 0 ? ORDER_KEEP : ORDER_EXECUTE,
		.flags = ((wish->flags & RUN_STDIN) != 0 ? 0u : (uint32_t)ORDER_NO_INPUT) | (total > ORDER_INLINE_MAX ? (uint32_t)ORDER_IN_FILE : 0),
		.directory = (uint32_t)directory, .variables = (uint32_t)variables, .text = wish->script.length + 1,
	};
	memcpy(memory, &head, sizeof(head));
	if (directory > 0)
		at = add(at, &wish->directory);
	struct fields fields = run_fields(body, length);
	struct field field;
	while (fields_next(&fields, &field) > 0)
		if (field.tag == TAG_ENV || field.tag == TAG_UNSET)
			at = add(at, &field);
	memcpy(at, wish->script.bytes, wish->script.length);
	at[wish->script.length] = 0;
	return (wish->flags & RUN_FORK) != 0 && !open_birth(run) ? "no descriptor left" : NULL;
}
