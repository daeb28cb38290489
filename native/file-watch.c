/*
 * WATCH: changes in a directory, or in a whole tree.
 *
 * Always true: it is armed before DONE. A directory that appears is watched first and looked through afterwards, so
 * that nothing in it is missed; some things are told twice. When the kernel lost events that is said, and the tree is
 * gone through again for directories nobody watches.
 */
#include "arena.h"
#include "paths.h"
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define WATCHES_MAX 65536u
#define BUCKETS 4096u
#define CHANGED (IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
#define ITSELF (IN_DELETE_SELF | IN_MOVE_SELF)

enum { CREATED = 1, MODIFIED, REMOVED, MOVED_FROM, MOVED_TO, OVERFLOW };

/* One watched directory and its path below the top. */
struct watch {
	struct watch *next;
	int number;
	char path[];
};

static struct watch *buckets[BUCKETS];
static unsigned watch_count;
static int notify = -1, top_number;
static uint32_t request_number;
static bool recursive, top_is_directory;
static const char *top_path;

static struct watch **find(int number)
{
	struct watch **link = &buckets[(unsigned)number % BUCKETS];
	while (*link != NULL && (*link)->number != number)
		link = &(*link)->next;
	return link;
}

static void forget(int number)
{
	struct watch **link = find(number), *watch = *link;
	if (watch == NULL)
		return;
	*link = watch->next;
	watch_count--;
	arena_give(watch);
}

/* Everything at or below `path`: its names are wrong from now on. */
static void forget_tree(const char *path)
{
	size_t length = strlen(path);
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct watch **link = &buckets[i]; *link != NULL;) {
			struct watch *watch = *link;
			if (strncmp(watch->path, path, length) != 0 || (watch->path[length] != 0 && watch->path[length] != '/')) {
				link = &watch->next;
				continue;
			}
			inotify_rm_watch(notify, watch->number);
			*link = watch->next;
			watch_count--;
			arena_give(watch);
		}
	}
}

/* Watches an open directory: 0, or -1 with errno. */
static int add(int directory, const char *path, uint32_t more)
{
	char name[40];
	snprintf(name, sizeof(name), "/proc/self/fd/%d", directory);
	if (watch_count >= WATCHES_MAX) {
		errno = ENOSPC;
		return -1;
	}
	int number = inotify_add_watch(notify, name, CHANGED | IN_EXCL_UNLINK | more);
	if (number < 0)
		return -1;
	forget(number);
	size_t length = strlen(path);
	struct watch *watch = arena_take(sizeof(*watch) + length + 1);
	if (watch == NULL) {
		inotify_rm_watch(notify, number);
		errno = ENOMEM;
		return -1;
	}
	struct watch **link = &buckets[(unsigned)number % BUCKETS];
	*watch = (struct watch){ .next = *link, .number = number };
	memcpy(watch->path, path, length + 1);
	*link = watch;
	watch_count++;
	return number;
}

/* Whatever is gone or swapped by the time we look is no error; what there is no room for is. */
static bool harmless(int error)
{
	return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES || error == EPERM || error == ESTALE;
}

/*
 * Watches everything below an open directory (which it takes) whose path is `prefix`, and with `tell` reports what it
 * finds as created. 0, or -1 with errno.
 */
static int add_tree(int directory, const char *prefix, bool tell)
{
	struct walk walk;
	size_t prefix_length = strlen(prefix);
	char *path = NULL;
	int result = 0;
	if (walk_begin(&walk, directory) < 0)
		return -1;
	if (names_read(walk_directory(&walk), &walk_level(&walk)->names) < 0)
		result = harmless(errno) ? 0 : -1;
	while (result == 0 && walk.depth > 0) {
		struct level *level = walk_level(&walk);
		if (level->index == level->names.count) {
			/* The rest cannot be reached from a directory that was moved away; whoever moved it is told of. */
			if (walk_leave(&walk) < 0)
				break;
			continue;
		}
		uint8_t type = names_type(&level->names, level->index);
		const char *name = names_at(&level->names, level->index++), *below = walk_path(&walk, name);
		size_t length = below == NULL ? 0 : strlen(below);
		char *grown = below == NULL ? NULL : arena_grow(path, prefix_length + length + 2);
		if (grown == NULL) {
			errno = ENOMEM;
			result = -1;
			break;
		}
		path = grown;
		memcpy(path, prefix, prefix_length);
		path[prefix_length] = '/';
		memcpy(path + prefix_length + (prefix_length > 0), below, length + 1);
		if (tell)
			answer_change(request_number, CREATED, 0, path, strlen(path));
		/* DT_DIR, or a file system that does not tell. */
		if (!recursive || (type != 4 && type != 0))
			continue;
		if (walk_enter(&walk, name) < 0) {
			result = harmless(errno) ? 0 : -1;
			continue;
		}
		if (walk_is_procfs(walk_directory(&walk)))
			continue;
		if (add(walk_directory(&walk), path, 0) < 0 || names_read(walk_directory(&walk), &walk_level(&walk)->names) < 0)
			result = harmless(errno) ? 0 : -1;
	}
	int error = errno;
	arena_give(path);
	walk_end(&walk);
	errno = error;
	return result;
}

/* A directory has appeared at `path`. */
static void watch_new(const char *path)
{
	int top = open(top_path, DIRECTORY_ONLY), here = top;
	/* Down name by name, not through links that somebody may have put there. */
	for (const char *at = path; here >= 0 && *at != 0;) {
		char name[NAME_MAX + 1];
		size_t length = strcspn(at, "/");
		if (length > NAME_MAX)
			length = NAME_MAX;
		memcpy(name, at, length);
		name[length] = 0;
		int next = openat(here, name, DIRECTORY_ONLY | O_NOFOLLOW);
		close(here);
		here = next;
		at += length;
		at += *at == '/';
	}
	if (here < 0)
		return;
	if (add(here, path, 0) < 0) {
		if (!harmless(errno))
			answer_change(request_number, OVERFLOW, 0, path, strlen(path));
		close(here);
		return;
	}
	if (add_tree(here, path, true) < 0)
		answer_change(request_number, OVERFLOW, 0, path, strlen(path));
}

static uint8_t what_of(uint32_t mask)
{
	if ((mask & IN_CREATE) != 0)
		return CREATED;
	if ((mask & IN_DELETE) != 0)
		return REMOVED;
	if ((mask & IN_MOVED_FROM) != 0)
		return MOVED_FROM;
	return (mask & IN_MOVED_TO) != 0 ? MOVED_TO : MODIFIED;
}

static void overflowed(void)
{
	answer_change(request_number, OVERFLOW, 0, NULL, 0);
	if (!recursive || !top_is_directory)
		return;
	int top = open(top_path, DIRECTORY_ONLY);
	if (top >= 0)
		add_tree(top, "", false);
}

static void changed(const struct inotify_event *event)
{
	static char path[PATH_MAX * 8];
	static int last_number;
	static uint32_t hidden_cookie;
	static char last_name[NAME_MAX + 1];
	if ((event->mask & IN_Q_OVERFLOW) != 0) {
		overflowed();
		return;
	}
	if (event->wd == top_number && (event->mask & ITSELF) != 0) {
		answer_change(request_number, REMOVED, 0, NULL, 0);
		answers_flush();
		worker_end();
	}
	if ((event->mask & IN_IGNORED) != 0) {
		forget(event->wd);
		return;
	}
	struct watch *watch = *find(event->wd);
	if (watch == NULL || (event->mask & CHANGED) == 0)
		return;
	const char *name = event->len > 0 ? event->name : "";
	size_t length = strlen(watch->path), more = strlen(name);
	if (length + more + 2 > sizeof(path))
		return;
	memcpy(path, watch->path, length);
	if (length > 0 && more > 0)
		path[length++] = '/';
	memcpy(path + length, name, more + 1);
	uint8_t what = what_of(event->mask);
	/* Our own half-written files are nobody's business; the one that takes another's place is a change of that one. */
	if (is_temporary(name)) {
		hidden_cookie = what == MOVED_FROM ? event->cookie : hidden_cookie;
		return;
	}
	bool replaced = what == MOVED_TO && event->cookie != 0 && event->cookie == hidden_cookie;
	if (replaced)
		what = MODIFIED;
	/* A file that is being written tells so with every write; once in a row is enough. */
	bool again = what == MODIFIED && last_number == event->wd && strcmp(last_name, name) == 0;
	last_number = what == MODIFIED ? event->wd : 0;
	memcpy(last_name, name, more + 1);
	if (again)
		return;
	answer_change(request_number, what, replaced ? 0 : event->cookie, path, length + more);
	if (!recursive || (event->mask & IN_ISDIR) == 0)
		return;
	if (what == MOVED_FROM || what == REMOVED)
		forget_tree(path);
	else if (what == CREATED || what == MOVED_TO)
		watch_new(path);
}

static _Noreturn void report(void)
{
	_Alignas(struct inotify_event) static char bytes[65536];
	for (;;) {
		struct pollfd both[2] = { { .fd = WORKER_CONNECTION, .events = POLLIN }, { .fd = notify, .events = POLLIN } };
		answers_flush();
		if (poll(both, 2, -1) < 0)
			continue;
		/* Nothing more is served here: bytes are as much the end as their end. */
		if (both[0].revents != 0)
			worker_end();
		ssize_t count = read(notify, bytes, sizeof(bytes));
		for (ssize_t at = 0; at < count;) {
			const struct inotify_event *event = (const struct inotify_event *)(bytes + at);
			at += (ssize_t)(sizeof(*event) + event->len);
			changed(event);
		}
	}
}

static int arm(const char *path)
{
	struct stat info;
	notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (notify < 0)
		return -1;
	int top = open(path, O_CLOEXEC | PATH_FLAGS);
	if (top < 0 || fstat(top, &info) < 0 || (top_number = add(top, "", ITSELF)) < 0)
		return -1;
	close(top);
	top_is_directory = S_ISDIR(info.st_mode);
	if (!recursive || !top_is_directory)
		return 0;
	top = open(path, DIRECTORY_ONLY);
	return top < 0 ? -1 : add_tree(top, "", false);
}

void serve_watch(const struct request *request)
{
	const char *path = path_at(request, 1);
	if (path == NULL)
		return;
	recursive = request->body[0] != 0;
	request_number = request->number;
	top_path = arena_copy(path, strlen(path));
	if (top_path == NULL || arm(path) < 0) {
		fault_errno(request, path);
		answers_flush();
		worker_end();
	}
	answer_done(request->number);
	report();
}
