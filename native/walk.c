/* See walk.h. */
#include "walk.h"

#include "arena.h"
#include "directory.h"
#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define KEPT_DESCRIPTORS 128
#define NAMES_MAX (48u << 20) /* bytes of the names of one directory */

/* Appends one name: false without memory, or past the bound. */
static bool add_name(struct names *names, size_t *used, size_t *places, const struct directory_entry *entry)
{
	size_t length = strlen(entry->name) + 2;
	if (*used + length > NAMES_MAX)
		return false;
	char *bytes = arena_grow(names->bytes, *used + length);
	if (bytes == NULL)
		return false;
	names->bytes = bytes;
	if (names->count == *places) {
		uint32_t *grown = arena_grow(names->places, (*places + *places / 2 + 64) * sizeof(uint32_t));
		if (grown == NULL)
			return false;
		names->places = grown;
		*places += *places / 2 + 64;
	}
	names->places[names->count++] = (uint32_t)*used;
	bytes[*used] = (char)entry->type;
	memcpy(bytes + *used + 1, entry->name, length - 1);
	*used += length;
	return true;
}

/* Bottom-up merge: libc's qsort may allocate. */
static bool sort(struct names *names)
{
	uint32_t *from = names->places, *to = arena_take((names->count + 1) * sizeof(uint32_t));
	if (to == NULL)
		return false;
	for (size_t width = 1; width < names->count; width *= 2) {
		for (size_t begin = 0; begin < names->count; begin += 2 * width) {
			size_t middle = begin + width < names->count ? begin + width : names->count;
			size_t end = middle + width < names->count ? middle + width : names->count;
			size_t left = begin, right = middle, at = begin;
			while (left < middle && right < end)
				to[at++] = strcmp(names->bytes + from[right] + 1, names->bytes + from[left] + 1) < 0 ? from[right++] : from[left++];
			while (left < middle)
				to[at++] = from[left++];
			while (right < end)
				to[at++] = from[right++];
		}
		uint32_t *swap = from;
		from = to;
		to = swap;
	}
	names->places = from;
	arena_give(to);
	return true;
}

int names_read(int directory, struct names *names)
{
	struct directory_reader reader;
	const struct directory_entry *entry;
	size_t used = 0, places = 0;
	int more;
	*names = (struct names){ 0 };
	if (directory_begin(&reader, directory) < 0)
		return -1;
	while ((more = directory_next(&reader, &entry)) > 0) {
		if (!add_name(names, &used, &places, entry)) {
			names_free(names);
			errno = ENOMEM;
			return -1;
		}
	}
	if (more < 0 || !sort(names)) {
		int error = more < 0 ? errno : ENOMEM;
		names_free(names);
		errno = error;
		return -1;
	}
	return 0;
}

void names_free(struct names *names)
{
	arena_give(names->bytes);
	arena_give(names->places);
	*names = (struct names){ 0 };
}

size_t names_find(const struct names *names, const char *name, size_t length)
{
	size_t low = 0, high = names->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const char *at = names_at(names, middle);
		int order = strncmp(at, name, length);
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool walk_is_procfs(int directory)
{
	struct statfs info;
	return fstatfs(directory, &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

static int push(struct walk *walk, int directory)
{
	struct stat info;
	if (fstat(directory, &info) < 0)
		return -1;
	if (walk->depth == walk->capacity) {
		size_t capacity = walk->capacity == 0 ? 16 : walk->capacity * 2;
		struct level *grown = arena_grow(walk->levels, capacity * sizeof(*grown));
		if (grown == NULL) {
			errno = ENOMEM;
			return -1;
		}
		walk->levels = grown;
		walk->capacity = capacity;
	}
	walk->levels[walk->depth++] = (struct level){ .device = info.st_dev, .inode = info.st_ino, .fd = directory };
	return 0;
}

int walk_begin(struct walk *walk, int directory)
{
	*walk = (struct walk){ 0 };
	walk->path = arena_take(256);
	walk->path_capacity = 256;
	if (walk->path == NULL || push(walk, directory) < 0) {
		int error = walk->path == NULL ? ENOMEM : errno;
		close(directory);
		arena_give(walk->path);
		errno = error;
		return -1;
	}
	walk->path[0] = 0;
	return 0;
}

void walk_end(struct walk *walk)
{
	while (walk->depth > 0) {
		struct level *level = walk_level(walk);
		if (level->fd >= 0)
			close(level->fd);
		names_free(&level->names);
		walk->depth--;
	}
	arena_give(walk->levels);
	arena_give(walk->path);
	*walk = (struct walk){ 0 };
}

const char *walk_path(struct walk *walk, const char *name)
{
	size_t length = walk_level(walk)->path_length, more = strlen(name);
	if (length + more + 2 > walk->path_capacity) {
		char *grown = arena_grow(walk->path, (length + more + 2) * 2);
		if (grown == NULL)
			return NULL;
		walk->path = grown;
		walk->path_capacity = (length + more + 2) * 2;
	}
	if (length > 0)
		walk->path[length++] = '/';
	memcpy(walk->path + length, name, more + 1);
	return walk->path;
}

int walk_enter(struct walk *walk, const char *name)
{
	if (walk_path(walk, name) == NULL) {
		errno = ENOMEM;
		return -1;
	}
	size_t length = strlen(walk->path);
	int child = openat(walk_directory(walk), name, DIRECTORY_ONLY | O_NOFOLLOW);
	if (child < 0 || push(walk, child) < 0) {
		int error = errno;
		if (child >= 0)
			close(child);
		errno = error;
		return -1;
	}
	walk_level(walk)->path_length = length;
	/* All but the uppermost directories are let go while we are below them. */
	if (walk->depth > KEPT_DESCRIPTORS) {
		struct level *above = &walk->levels[walk->depth - 2];
		close(above->fd);
		above->fd = -1;
	}
	return 0;
}

int walk_leave(struct walk *walk)
{
	struct level *level = walk_level(walk);
	int directory = level->fd, result = 0;
	names_free(&level->names);
	walk->depth--;
	if (walk->depth > 0 && walk_level(walk)->fd < 0) {
		struct stat info;
		int parent = openat(directory, "..", DIRECTORY_ONLY);
		level = walk_level(walk);
		if (parent < 0) {
			result = -1;
		} else if (fstat(parent, &info) < 0 || info.st_dev != level->device || info.st_ino != level->inode) {
			close(parent);
			errno = ESTALE;
			result = -1;
		} else {
			level->fd = parent;
		}
	}
	int error = errno;
	close(directory);
	if (walk->depth > 0)
		walk->path[walk_level(walk)->path_length] = 0;
	errno = error;
	return result;
}
