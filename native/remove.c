/*
 * Removal of a tree that a sandbox wrote: any depth, any names, nothing followed.
 *
 * It walks with one descriptor at a time and comes back through "..", checking that it is where it was, so that depth
 * costs neither descriptors nor path length.
 *
 * Always true: only directory descriptors opened without following a link are descended into; another file system is
 * never entered; a tree that is already gone is a success. On a cgroup file system only directories are removed, which
 * is what rmdir of a group means there.
 */
#include "remove.h"

#include "directory.h"
#include "kernel.h"
#include "report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef CGROUP2_SUPER_MAGIC
#define CGROUP2_SUPER_MAGIC 0x63677270
#endif
#ifndef CGROUP_SUPER_MAGIC
#define CGROUP_SUPER_MAGIC 0x27e0eb
#endif
#define DIRECTORY_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)

/* A directory on the way down: what it is called in its parent, and which it is. */
struct level {
	dev_t device;
	ino_t inode;
	char *name;
};

static struct level *levels;
static size_t depth, levels_capacity;
static bool groups_only;

static void clear_immutable(int file)
{
	int flags;
	if (ioctl(file, FS_IOC_GETFLAGS, &flags) == 0 && (flags & (FS_IMMUTABLE_FL | FS_APPEND_FL)) != 0) {
		flags &= ~(FS_IMMUTABLE_FL | FS_APPEND_FL);
		ioctl(file, FS_IOC_SETFLAGS, &flags);
	}
}

static int remove_file(int directory, const char *name)
{
	if (unlinkat(directory, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EPERM && errno != EACCES)
		return -1;
	clear_immutable(directory);
	int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (file >= 0) {
		clear_immutable(file);
		close(file);
	}
	return unlinkat(directory, name, 0) == 0 || errno == ENOENT ? 0 : -1;
}

static int push(const struct stat *info, const char *name)
{
	if (depth == levels_capacity) {
		size_t capacity = levels_capacity == 0 ? 64 : levels_capacity * 2;
		struct level *grown = realloc(levels, capacity * sizeof(*grown));
		if (grown == NULL)
			return -1;
		levels = grown;
		levels_capacity = capacity;
	}
	char *copied = strdup(name);
	if (copied == NULL)
		return -1;
	levels[depth++] = (struct level){ info->st_dev, info->st_ino, copied };
	return 0;
}

static bool is_directory(int directory, const struct directory_entry *entry)
{
	struct stat info;
	if (entry->type != DT_UNKNOWN)
		return entry->type == DT_DIR;
	return fstatat(directory, entry->name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

/* Removes the files of a directory and stops at the first subdirectory: 1 with its name, 0 when none is left, -1. */
static int empty_files(int directory, char *name, size_t size)
{
	struct directory_reader reader;
	const struct directory_entry *entry;
	bool removed;
	do {
		int more;
		removed = false;
		if (directory_begin(&reader, directory) < 0)
			return -1;
		while ((more = directory_next(&reader, &entry)) > 0) {
			if (is_directory(directory, entry)) {
				if (unlinkat(directory, entry->name, AT_REMOVEDIR) == 0) {
					removed = true;
					continue;
				}
				if (errno == ENOENT)
					continue;
				if (strlen(entry->name) >= size)
					return -1;
				strcpy(name, entry->name);
				return 1;
			}
			if (groups_only)
				continue;
			if (remove_file(directory, entry->name) < 0)
				return -1;
			removed = true;
		}
		if (more < 0)
			return -1;
		/* Removing while listing may skip entries; look again until a pass finds nothing. */
	} while (removed);
	return 0;
}

/* Of the file system that we are in: a btrfs that is mounted here has a device of its own too. */
static bool is_subvolume(int directory)
{
	struct statfs system;
	struct statx info;
	if (fstatfs(directory, &system) < 0 || system.f_type != BTRFS_SUPER_MAGIC)
		return false;
	if (statx(directory, "", AT_EMPTY_PATH, STATX_TYPE, &info) < 0 || (info.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) == 0)
		return false;
	return (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0;
}

/* Enters `name`: the new descriptor, or -1. The old one is closed. */
static int descend(int directory, const char *name)
{
	struct stat here, there;
	int child = openat(directory, name, DIRECTORY_FLAGS);
	if (child < 0 && errno == EACCES) {
		fchmodat(directory, name, 0700, 0);
		child = openat(directory, name, DIRECTORY_FLAGS);
	}
	if (child < 0)
		return -1;
	if (fstat(directory, &here) < 0 || fstat(child, &there) < 0 || push(&here, name) < 0) {
		close(child);
		return -1;
	}
	/* A different device is a mount, or a subvolume, which rmdir has already refused to remove while it has files. */
	if (here.st_dev != there.st_dev && !groups_only && !is_subvolume(child)) {
		close(child);
		errno = EXDEV;
		return -1;
	}
	clear_immutable(child);
	close(directory);
	return child;
}

/* Leaves the directory we are in, which is empty, and removes it: the parent's descriptor, or -1. */
static int ascend(int directory)
{
	struct stat info;
	struct level level = levels[--depth];
	int parent = openat(directory, "..", DIRECTORY_FLAGS);
	close(directory);
	int result = parent;
	if (parent >= 0 && (fstat(parent, &info) < 0 || info.st_dev != level.device || info.st_ino != level.inode)) {
		errno = ESTALE; /* Somebody moved it while we were inside. */
		result = -1;
	} else if (parent >= 0 && unlinkat(parent, level.name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
		clear_immutable(parent);
		if (unlinkat(parent, level.name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			result = -1;
	}
	free(level.name);
	return result;
}

static int remove_all(int parent, const char *name)
{
	char child[NAME_MAX + 1];
	int directory = descend(parent, name);
	while (directory >= 0 && depth > 0) {
		int found = empty_files(directory, child, sizeof(child));
		if (found < 0)
			return -1;
		directory = found > 0 ? descend(directory, child) : ascend(directory);
	}
	return directory < 0 ? -1 : 0;
}

int remove_tree(const char *path, int report)
{
	char *copied = strdup(path);
	size_t length = copied == NULL ? 0 : strlen(copied);
	while (length > 1 && copied[length - 1] == '/')
		copied[--length] = 0;
	char *slash = copied == NULL ? NULL : strrchr(copied, '/');
	const char *name = slash == NULL ? "" : slash + 1;
	if (name[0] == 0 || is_dots(name)) {
		report_failure(report, EINVAL, "remove", "%.200s is not the name of a tree", path);
		return 1;
	}
	*slash = 0;
	int parent = open(slash == copied ? "/" : copied, DIRECTORY_FLAGS & ~O_NOFOLLOW);
	struct stat info;
	if (parent < 0 || fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT) {
			report_send(report, RECORD_DONE, 0);
			return 0;
		}
		report_failure(report, errno, "remove", "cannot look at %.200s", path);
		return 1;
	}
	struct statfs system;
	groups_only = fstatfs(parent, &system) == 0 && (system.f_type == CGROUP2_SUPER_MAGIC || system.f_type == CGROUP_SUPER_MAGIC);
	int result = S_ISDIR(info.st_mode) ? remove_all(parent, name) : remove_file(parent, name), error = errno;
	/* Whoever hears of the end may unmount what this child still has open. */
	kernel_close_range((unsigned)report + 1, ~0u);
	if (result < 0) {
		report_failure(report, error, "remove", "cannot remove something in %.200s", path);
		return 1;
	}
	report_send(report, RECORD_DONE, 0);
	return 0;
}
