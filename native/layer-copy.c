/*
 * Copies a tree exactly, gives a directory the looks of another, and measures a tree.
 *
 * Always true: both trees are gone through by descriptors, at any depth; a directory gets its times when it is left.
 */
#include "layer.h"
#include "layer-entry.h"
#include "paths.h"
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_directory(const char *path)
{
	return open(path, DIRECTORY_ONLY | O_NOFOLLOW);
}

/* Into `name` of both, which is made in the copy. */
static int enter(struct walk *from, struct walk *to, const char *name)
{
	if (mkdirat(walk_directory(to), name, 0700) < 0 || walk_enter(from, name) < 0 || walk_enter(to, name) < 0)
		return -1;
	return names_read(walk_directory(from), &walk_level(from)->names);
}

static int leave(struct walk *from, struct walk *to)
{
	if (entry_dress(walk_directory(from), walk_directory(to), false) < 0)
		return -1;
	return walk_leave(from) < 0 ? -1 : walk_leave(to);
}

/* Not every file system tells the type with the name. */
static bool is_directory(int directory, const struct names *names, size_t index)
{
	struct stat info;
	if (names_type(names, index) != DT_UNKNOWN)
		return names_type(names, index) == DT_DIR;
	return fstatat(directory, names_at(names, index), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

static int copy_tree(struct walk *from, struct walk *to, const struct link_area *area)
{
	if (names_read(walk_directory(from), &walk_level(from)->names) < 0)
		return layer_say("cannot list the top of the tree");
	while (from->depth > 0) {
		struct level *level = walk_level(from);
		if (level->index == level->names.count) {
			if (leave(from, to) < 0)
				return layer_say("cannot finish the directory /%.150s", from->depth > 0 ? from->path : "");
			continue;
		}
		size_t index = level->index++;
		const char *name = names_at(&level->names, index);
		int result = is_directory(walk_directory(from), &level->names, index)
				     ? enter(from, to, name)
				     : entry_copy(walk_directory(from), name, walk_directory(to), area, 0);
		if (result < 0)
			return layer_say("cannot copy /%.70s/%.70s", from->path, name);
	}
	return 0;
}

int layer_copy(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	(void)result;
	struct walk from, to;
	struct link_area area;
	int source = open_directory(arguments[0]);
	if (source < 0)
		return layer_say("cannot open %.150s", arguments[0]);
	if (mkdir(arguments[1], 0700) < 0 || link_area_open(&area, arguments[1]) < 0)
		return layer_say("cannot make %.150s", arguments[1]);
	int target = open_directory(arguments[1]);
	if (target < 0 || walk_begin(&from, source) < 0 || walk_begin(&to, target) < 0)
		return layer_say("cannot begin a walk");
	if (copy_tree(&from, &to, &area) < 0)
		return -1;
	return link_area_close(&area) < 0 ? layer_say("cannot remove the area of links") : 0;
}

int layer_dress(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	(void)result;
	int from = open_directory(arguments[0]), to = open_directory(arguments[1]);
	if (from < 0 || to < 0 || entry_dress(from, to, true) < 0)
		return layer_say("cannot give %.70s the looks of %.70s", arguments[1], arguments[0]);
	return 0;
}

/* A file with several names is counted by its share for each, so that all of its names make the whole. */
int layer_size(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	struct walk walk;
	struct stat info;
	uint64_t shares = 0, entries = 0;
	int top = open_directory(arguments[0]);
	if (top < 0 || walk_begin(&walk, top) < 0 || names_read(walk_directory(&walk), &walk_level(&walk)->names) < 0)
		return layer_say("cannot open %.150s", arguments[0]);
	while (walk.depth > 0) {
		struct level *level = walk_level(&walk);
		if (level->index == level->names.count) {
			if (walk_leave(&walk) < 0)
				return layer_say("cannot go on in %.150s", arguments[0]);
			continue;
		}
		const char *name = names_at(&level->names, level->index++);
		if (fstatat(walk_directory(&walk), name, &info, AT_SYMLINK_NOFOLLOW) < 0) {
			if (errno == ENOENT)
				continue;
			return layer_say("cannot look at /%.70s/%.70s", walk.path, name);
		}
		entries++;
		uint64_t links = S_ISDIR(info.st_mode) || info.st_nlink == 0 ? 1 : (uint64_t)info.st_nlink;
		/* In 1024ths of a block of 512 bytes: no rounding that matters, and no overflow below 2^53 bytes. */
		shares += (uint64_t)info.st_blocks * 1024 / links;
		if (S_ISDIR(info.st_mode) && (walk_enter(&walk, name) < 0 || names_read(walk_directory(&walk), &walk_level(&walk)->names) < 0)) {
			if (errno == ENOENT)
				continue;
			return layer_say("cannot enter /%.70s/%.70s", walk.path, name);
		}
	}
	snprintf(result, LAYER_RESULT_MAX, "%llu %llu", (unsigned long long)(shares / 2), (unsigned long long)entries);
	return 0;
}

/* Really shares a block between two files that have no name. */
int layer_clone_probe(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	(void)result;
	static const char bytes[65536] = "probe";
	int from = open(arguments[0], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int to = open(arguments[0], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (from < 0 || to < 0 || write(from, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes))
		return layer_say("cannot make files in %.150s", arguments[0]);
	if (ioctl(to, FICLONE, from) < 0)
		return layer_say("the file system of %.100s does not share blocks between files", arguments[0]);
	return 0;
}
