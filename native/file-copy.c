/*
 * COPY: a file, a link, a FIFO, or with the flag a whole tree.
 *
 * Always true: both trees are gone through by descriptors, so nothing is read from outside the one or written outside
 * the other. Modes and times are kept, owners where the user may; a set-user-id bit goes with an owner that cannot be.
 */
#include "paths.h"
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define UNSIZED_MAX (64u << 20)

enum { RECURSIVE = 1, REPLACE = 2, KNOWN = 3 };

static int copy_bytes(int from, int to, uint64_t left)
{
	static uint8_t bytes[DATA_MAX];
	bool by_kernel = true;
	while (left > 0) {
		ssize_t count;
		if (by_kernel) {
			count = copy_file_range(from, NULL, to, NULL, left < (1u << 30) ? (size_t)left : 1u << 30, 0);
			if (count < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS)) {
				by_kernel = false;
				continue;
			}
		} else {
			count = read(from, bytes, left < sizeof(bytes) ? (size_t)left : sizeof(bytes));
			if (count > 0 && write_all(to, bytes, (size_t)count) < 0)
				return -1;
		}
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return -1;
		/* Some file systems copy nothing and say so for files whose size they do not know. */
		if (count == 0 && by_kernel) {
			by_kernel = false;
			continue;
		}
		if (count == 0)
			break;
		left -= (uint64_t)count;
	}
	return 0;
}

static int dress(int file, const struct stat *info)
{
	mode_t mode = info->st_mode & 07777;
	struct timespec times[2] = { info->st_atim, info->st_mtim };
	if ((info->st_uid != geteuid() || info->st_gid != getegid()) && fchown(file, info->st_uid, info->st_gid) < 0)
		mode &= 01777;
	return fchmod(file, mode) < 0 ? -1 : futimens(file, times);
}

static int open_copy(int directory, const char *name, char temporary[TEMPORARY_NAME], bool replace)
{
	temporary[0] = 0;
	int file = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file >= 0 || errno != EEXIST || !replace)
		return file;
	temporary_name(temporary);
	return openat(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static int copy_file(int from, const char *name, int to, const char *new_name, bool replace)
{
	struct stat info;
	char temporary[TEMPORARY_NAME];
	int source = open_regular(from, name, O_RDONLY | O_NOFOLLOW, &info);
	if (source < 0)
		return -1;
	int copy = open_copy(to, new_name, temporary, replace);
	int result = copy < 0 ? -1 : 0, error;
	if (result == 0)
		result = copy_bytes(source, copy, info.st_size > 0 ? (uint64_t)info.st_size : UNSIZED_MAX);
	if (result == 0)
		result = dress(copy, &info);
	if (result == 0 && temporary[0] != 0)
		result = renameat(to, temporary, to, new_name);
	error = errno;
	if (result < 0 && copy >= 0)
		unlinkat(to, temporary[0] != 0 ? temporary : new_name, 0);
	close(source);
	if (copy >= 0)
		close(copy);
	errno = error;
	return result;
}

static int copy_link(int from, const char *name, int to, const char *new_name, bool replace)
{
	const char *target = link_target(from, name);
	if (target == NULL)
		return -1;
	if (symlinkat(target, to, new_name) == 0)
		return 0;
	if (errno != EEXIST || !replace)
		return -1;
	char temporary[TEMPORARY_NAME];
	temporary_name(temporary);
	if (symlinkat(target, to, temporary) < 0)
		return -1;
	if (renameat(to, temporary, to, new_name) == 0)
		return 0;
	int error = errno;
	unlinkat(to, temporary, 0);
	errno = error;
	return -1;
}

/* Anything but a directory. ENXIO: a socket or device. */
static int copy_entry(int from, const char *name, const struct stat *info, int to, const char *new_name, bool replace)
{
	if (S_ISREG(info->st_mode))
		return copy_file(from, name, to, new_name, replace);
	if (S_ISLNK(info->st_mode))
		return copy_link(from, name, to, new_name, replace);
	if (!S_ISFIFO(info->st_mode)) {
		errno = ENXIO;
		return -1;
	}
	if (replace && unlinkat(to, new_name, 0) < 0 && errno != ENOENT)
		return -1;
	return mkfifoat(to, new_name, info->st_mode & 0777);
}

/* Goes down in both trees. The new level's `index` says whether its directory is ours to dress. */
static int enter(struct walk *from, const char *name, struct walk *to, const char *new_name, bool replace)
{
	bool fresh = mkdirat(walk_directory(to), new_name, 0700) == 0;
	if (!fresh && (errno != EEXIST || !replace))
		return -1;
	if (walk_enter(to, new_name) < 0)
		return -1;
	walk_level(to)->index = fresh;
	if (walk_enter(from, name) < 0)
		return -1;
	/* The first level below the top is the new tree's own root; somebody may have moved it into the old one. */
	const struct level *root = &to->levels[1], *here = walk_level(from);
	if (here->device == root->device && here->inode == root->inode) {
		errno = EINVAL;
		return -1;
	}
	if (walk_is_procfs(walk_directory(from)) && from->depth > 2)
		return 0;
	return names_read(walk_directory(from), &walk_level(from)->names);
}

static int leave(struct walk *from, struct walk *to)
{
	struct stat info;
	if (walk_level(to)->index != 0 && (fstat(walk_directory(from), &info) < 0 || dress(walk_directory(to), &info) < 0))
		return -1;
	return walk_leave(from) < 0 ? -1 : walk_leave(to);
}

static int copy_tree(struct walk *from, const char *name, struct walk *to, const char *new_name, bool replace)
{
	if (enter(from, name, to, new_name, replace) < 0)
		return -1;
	while (from->depth > 1) {
		struct level *level = walk_level(from);
		struct stat info;
		if (level->index == level->names.count) {
			if (leave(from, to) < 0)
				return -1;
			continue;
		}
		const char *entry = names_at(&level->names, level->index++);
		if (fstatat(walk_directory(from), entry, &info, AT_SYMLINK_NOFOLLOW) < 0) {
			if (errno == ENOENT)
				continue;
			return -1;
		}
		int result = S_ISDIR(info.st_mode) ? enter(from, entry, to, entry, replace)
						   : copy_entry(walk_directory(from), entry, &info, walk_directory(to), entry, replace);
		/* Gone meanwhile is as good as never there; a socket is of no use to a copy. */
		if (result < 0 && errno != ENXIO && (errno != ENOENT || S_ISDIR(info.st_mode)))
			return -1;
	}
	return 0;
}

/* Whether the directory `info` is `to` or one above it: its copy would have to contain itself. */
static bool contains(const struct stat *info, int to)
{
	struct stat here, above;
	int directory = openat(to, ".", PATH_FLAGS | O_DIRECTORY | O_CLOEXEC);
	bool found = false, top = false;
	while (directory >= 0 && !found && !top && fstat(directory, &here) == 0) {
		found = here.st_dev == info->st_dev && here.st_ino == info->st_ino;
		int parent = openat(directory, "..", PATH_FLAGS | O_DIRECTORY | O_CLOEXEC);
		top = parent < 0 || fstat(parent, &above) < 0 || (above.st_dev == here.st_dev && above.st_ino == here.st_ino);
		close(directory);
		directory = parent;
	}
	if (directory >= 0)
		close(directory);
	return found;
}

static int copy(int from, const char *name, int to, const char *new_name, uint8_t flags)
{
	struct stat info;
	struct walk source, copied;
	if (fstatat(from, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (!S_ISDIR(info.st_mode))
		return copy_entry(from, name, &info, to, new_name, (flags & REPLACE) != 0);
	if ((flags & RECURSIVE) == 0) {
		errno = EISDIR;
		return -1;
	}
	if (contains(&info, to)) {
		errno = EINVAL;
		return -1;
	}
	if (walk_begin(&source, dup(from)) < 0)
		return -1;
	if (walk_begin(&copied, dup(to)) < 0) {
		walk_end(&source);
		return -1;
	}
	int result = copy_tree(&source, name, &copied, new_name, (flags & REPLACE) != 0);
	int error = errno;
	walk_end(&source);
	walk_end(&copied);
	errno = error;
	return result;
}

void serve_copy(const struct request *request)
{
	const char *from, *to;
	char name[NAME_MAX + 1], new_name[NAME_MAX + 1];
	if (!paths_at(request, 1, &from, &to, false))
		return;
	uint8_t flags = request->body[0];
	if ((flags & ~KNOWN) != 0)
		worker_end();
	int source = path_parent(from, false, name), target = source < 0 ? -1 : path_parent(to, false, new_name);
	if (source < 0 || target < 0)
		fault_errno(request, source < 0 ? from : to);
	else if (copy(source, name, target, new_name, flags) < 0)
		fault_errno(request, from);
	else
		answer_done(request->number);
	if (source >= 0)
		close(source);
	if (target >= 0)
		close(target);
}
