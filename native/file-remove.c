/*
 * REMOVE: a file, an empty directory, or a whole tree.
 *
 * Always true: no symbolic link is followed and no other mount is entered; only what was reached by descriptors from
 * the directory that was named is removed.
 */
#include "directory.h"
#include "paths.h"
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PASSES_MAX 16 /* over one directory into which somebody keeps putting things */

/* Removes a file or an empty directory: 0, 1 when it is a directory with something in it, -1 with errno. */
static int remove_entry(int directory, const char *name, bool likely_directory)
{
	for (int attempt = 0; attempt < 2; attempt++) {
		bool as_directory = likely_directory == (attempt == 0);
		if (unlinkat(directory, name, as_directory ? AT_REMOVEDIR : 0) == 0 || errno == ENOENT)
			return 0;
		if (as_directory && (errno == ENOTEMPTY || errno == EEXIST))
			return 1;
		/* Swapped meanwhile, or a type the file system does not tell: the other way. */
		if (errno != (as_directory ? ENOTDIR : EISDIR))
			return -1;
	}
	return -1;
}

/* Removes what can be removed here: 0 when nothing is left, 1 with the name of a directory to enter, -1 with errno. */
static int empty(int directory, char name[NAME_MAX + 1])
{
	struct directory_reader reader;
	const struct directory_entry *entry;
	for (int pass = 0; pass < PASSES_MAX; pass++) {
		bool found = false;
		int more;
		if (directory_begin(&reader, directory) < 0)
			return -1;
		while ((more = directory_next(&reader, &entry)) > 0) {
			found = true;
			int result = remove_entry(directory, entry->name, entry->type == 4);
			if (result > 0)
				strcpy(name, entry->name);
			if (result != 0)
				return result;
		}
		if (more < 0)
			return -1;
		/* Removing while listing may pass over entries; a pass that finds nothing is the end. */
		if (!found)
			return 0;
	}
	errno = ENOTEMPTY;
	return -1;
}

static int enter(struct walk *walk, const char *name)
{
	dev_t device = walk_level(walk)->device;
	if (walk_enter(walk, name) < 0)
		return -1;
	if (walk_level(walk)->device == device)
		return 0;
	walk_leave(walk);
	errno = EXDEV;
	return -1;
}

/* Everything below the level `top`. */
static int remove_below(struct walk *walk, size_t top)
{
	char name[NAME_MAX + 1];
	for (;;) {
		int result = empty(walk_directory(walk), name);
		if (result < 0)
			return -1;
		if (result > 0) {
			if (enter(walk, name) == 0 || errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
				continue;
			return -1;
		}
		if (walk->depth == top)
			return 0;
		/* The name is the last of the path; it is removed by the parent's next pass. */
		if (walk_leave(walk) < 0)
			return -1;
	}
}

/* Takes `parent`. */
static int remove_tree(int parent, const char *name)
{
	struct walk walk;
	int result = -1;
	if (walk_begin(&walk, parent) < 0)
		return -1;
	for (int pass = 0; pass < PASSES_MAX; pass++) {
		result = remove_entry(walk_directory(&walk), name, true);
		if (result <= 0)
			break;
		errno = ENOTEMPTY;
		result = -1;
		if (enter(&walk, name) < 0 || remove_below(&walk, 2) < 0 || walk_leave(&walk) < 0)
			break;
	}
	int error = errno;
	walk_end(&walk);
	errno = error;
	return result;
}

void serve_remove(const struct request *request)
{
	char name[NAME_MAX + 1];
	struct stat info;
	const char *path = path_at(request, 1);
	if (path == NULL)
		return;
	int parent = path_parent(path, false, name), result = -1;
	if (parent >= 0 && fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!S_ISDIR(info.st_mode))
			result = unlinkat(parent, name, 0);
		else if (request->body[0] == 0)
			result = unlinkat(parent, name, AT_REMOVEDIR);
		else
			result = remove_tree(parent, name), parent = -1;
	}
	if (result < 0)
		fault_errno(request, path);
	else
		answer_done(request->number);
	if (parent >= 0)
		close(parent);
}
