/*
 * Going through a tree by directory descriptors, at any depth, and the sorted names of a directory.
 *
 * Always true: a step down opens a real directory, never through a symbolic link, and a step up leads to the very
 * directory the step down came from, or fails with ESTALE; so a walk stays in the tree it began in, whatever is moved
 * or swapped meanwhile. Descriptors of the upper levels are kept; deeper ones are found again through "..".
 */
#ifndef ATOLL_WALK_H
#define ATOLL_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The names in a directory, sorted by bytes, "." and ".." left out. */
struct names {
	char *bytes;      /* each a type byte (as d_type) and a name with its NUL */
	uint32_t *places; /* of the types, in order */
	size_t count;
};

/* 0, or -1 with errno. */
int names_read(int directory, struct names *names);
void names_free(struct names *names);
static inline const char *names_at(const struct names *names, size_t index)
{
	return names->bytes + names->places[index] + 1;
}
static inline uint8_t names_type(const struct names *names, size_t index)
{
	return (uint8_t)names->bytes[names->places[index]];
}
/* The first name that is not before `name`. */
size_t names_find(const struct names *names, const char *name, size_t length);

struct level {
	dev_t device; /* of this level's directory */
	ino_t inode;
	int fd; /* -1: given up, to be found through ".." */
	struct names names;
	size_t index;       /* the next name */
	size_t path_length; /* of the walk's path at this level */
};

struct walk {
	struct level *levels;
	size_t depth, capacity; /* depth counts the levels: 1 at the top */
	char *path;             /* of the current level below the top, "" at the top */
	size_t path_capacity;
};

/* Takes `directory`. 0 or -1 with errno. */
int walk_begin(struct walk *walk, int directory);
void walk_end(struct walk *walk);
static inline struct level *walk_level(struct walk *walk)
{
	return &walk->levels[walk->depth - 1];
}
static inline int walk_directory(struct walk *walk)
{
	return walk_level(walk)->fd;
}
/* Down into `name`, which appears in the path; up again. 0, or -1 with errno and where it was. */
int walk_enter(struct walk *walk, const char *name);
/* At the top it only ends the level: depth becomes 0. -1 with errno: lost. */
int walk_leave(struct walk *walk);
/* The path of `name` in the current level; valid until the next call. NULL without memory. */
const char *walk_path(struct walk *walk, const char *name);
/* A directory of a file system that has no end, or whose files are not files: it is shown but not entered. */
bool walk_is_procfs(int directory);

#endif
