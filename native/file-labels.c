/*
 * LABELS and SET_LABELS: extended attributes of the user's name space (`user.`), which hold small texts about a file.
 *
 * Always true: nothing outside of that name space is told or changed. A file system without them has none.
 */
#include "paths.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

#define NAMES_MAX (64u << 10)
#define VALUE_MAX (64u << 10)

static const char space[] = "user.";

/* The names of all attributes, each ended by a NUL: their length, or -1 with errno. */
static ssize_t list_names(const char *path, char names[NAMES_MAX])
{
	ssize_t length = listxattr(path, names, NAMES_MAX);
	return length < 0 && errno == ENOTSUP ? 0 : length;
}

static bool is_ours(const char *name)
{
	return strncmp(name, space, sizeof(space) - 1) == 0;
}

void serve_labels(const struct request *request)
{
	static char names[NAMES_MAX];
	const char *path = path_at(request, 0);
	if (path == NULL)
		return;
	ssize_t length = list_names(path, names);
	if (length < 0) {
		fault_errno(request, path);
		return;
	}
	for (const char *name = names; name < names + length; name += strlen(name) + 1) {
		if (!is_ours(name))
			continue;
		size_t head = strlen(name) + 1;
		uint8_t *room = data_room(head + VALUE_MAX);
		memcpy(room, name, head);
		/* One that went away meanwhile, or that this user may not read, is not told. */
		ssize_t count = getxattr(path, name, room + head, VALUE_MAX);
		if (count >= 0)
			data_send(request->number, head + (size_t)count);
	}
	answer_done(request->number);
}

/* Whether `name` is among the pairs of name and value. */
static bool is_among(const char *name, const char *at, const char *end)
{
	while (at < end) {
		if (strcmp(at, name) == 0)
			return true;
		at += strlen(at) + 1;
		at += strlen(at) + 1;
	}
	return false;
}

static int set_labels(const char *path, const char *prefix, const char *pairs, const char *end)
{
	static char names[NAMES_MAX];
	ssize_t length = list_names(path, names);
	if (length < 0)
		return -1;
	for (const char *name = names; name < names + length; name += strlen(name) + 1) {
		bool goes = is_ours(name) && strncmp(name, prefix, strlen(prefix)) == 0 && !is_among(name, pairs, end);
		if (goes && removexattr(path, name) < 0 && errno != ENODATA)
			return -1;
	}
	for (const char *at = pairs; at < end;) {
		const char *name = at, *value = at + strlen(at) + 1;
		at = value + strlen(value) + 1;
		if (setxattr(path, name, value, strlen(value), 0) < 0)
			return -1;
	}
	return 0;
}

/* Texts that each end with a NUL: the path, the prefix, and pairs of name and value. */
void serve_set_labels(const struct request *request)
{
	const char *path = (const char *)request->body, *end = path + request->length;
	size_t texts = 0;
	for (const char *at = path; at < end; at++)
		texts += *at == 0;
	if (request->length == 0 || end[-1] != 0 || texts < 2 || texts % 2 != 0)
		worker_end();
	const char *prefix = path + strlen(path) + 1, *pairs = prefix + strlen(prefix) + 1;
	for (const char *at = pairs; at < end; at += strlen(at) + 1, at += strlen(at) + 1)
		if (!is_ours(at))
			worker_end();
	if (path[0] != '/' || strlen(path) >= PATH_MAX || !is_ours(prefix)) {
		errno = EINVAL;
		fault_errno(request, path);
	} else if (set_labels(path, prefix, pairs, end) < 0) {
		fault_errno(request, path);
	} else {
		answer_done(request->number);
	}
}
