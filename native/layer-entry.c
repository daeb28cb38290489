/* See layer-entry.h. */
#include "layer-entry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

#define OVERLAY_PREFIX "trusted.overlay."

/* Whether this file system has refused to share blocks; asked again by the next request. */
static bool no_clone;

bool entry_is_whiteout(const struct stat *info)
{
	return S_ISCHR(info->st_mode) && info->st_rdev == 0;
}

int link_area_open(struct link_area *area, const char *target)
{
	char path[PATH_MAX];
	const char *slash = strrchr(target, '/');
	if (slash == NULL || (size_t)(slash - target) >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(path, target, (size_t)(slash - target));
	path[slash - target] = 0;
	if (snprintf(area->name, sizeof(area->name), "%s.links", slash + 1) >= (int)sizeof(area->name)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	area->parent = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (area->parent < 0 || mkdirat(area->parent, area->name, 0700) < 0)
		return -1;
	area->directory = openat(area->parent, area->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return area->directory < 0 ? -1 : 0;
}

int link_area_close(struct link_area *area)
{
	/* Opened anew: btrfs lists what was there when a directory was opened. */
	int listed = openat(area->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = listed < 0 ? NULL : fdopendir(listed);
	if (list == NULL)
		return -1;
	struct dirent *entry;
	while ((entry = readdir(list)) != NULL)
		if (entry->d_name[0] != '.' && unlinkat(area->directory, entry->d_name, 0) < 0)
			return -1;
	closedir(list);
	close(area->directory);
	int result = unlinkat(area->parent, area->name, AT_REMOVEDIR);
	close(area->parent);
	return result;
}

static int write_at(int file, const uint8_t *bytes, size_t count, off_t offset)
{
	while (count > 0) {
		ssize_t written = pwrite(file, bytes, count, offset);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return -1;
		bytes += written;
		offset += written;
		count -= (size_t)written;
	}
	return 0;
}

static int copy_range(int from, int to, off_t offset, off_t end)
{
	static uint8_t bytes[1 << 18];
	while (offset < end) {
		size_t wanted = end - offset < (off_t)sizeof(bytes) ? (size_t)(end - offset) : sizeof(bytes);
		ssize_t count = pread(from, bytes, wanted, offset);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0 || (count > 0 && write_at(to, bytes, (size_t)count, offset) < 0))
			return -1;
		if (count == 0)
			return 0;
		offset += count;
	}
	return 0;
}

/* Only what holds data is written, so that holes stay holes. */
static int copy_data(int from, int to, off_t size)
{
	if (size > 0 && !no_clone) {
		if (ioctl(to, FICLONE, from) == 0)
			return 0;
		if (errno != EOPNOTSUPP && errno != ENOTTY && errno != EXDEV && errno != EINVAL)
			return -1;
		no_clone = true;
	}
	off_t at = 0;
	while (at < size) {
		off_t data = lseek(from, at, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			break;
		off_t hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
		if (data < 0 || hole < 0 || copy_range(from, to, data, hole < size ? hole : size) < 0)
			return -1;
		at = hole;
	}
	return ftruncate(to, size);
}

/* Both are paths that lead through a descriptor and whose last name is not followed. */
static int copy_attributes(const char *from, const char *to, bool plain)
{
	static char names[XATTR_LIST_MAX], value[XATTR_SIZE_MAX];
	ssize_t length = llistxattr(from, names, sizeof(names));
	if (length < 0)
		return errno == EOPNOTSUPP ? 0 : -1;
	for (const char *name = names; name < names + length; name += strlen(name) + 1) {
		if (plain && strncmp(name, OVERLAY_PREFIX, strlen(OVERLAY_PREFIX)) == 0)
			continue;
		ssize_t size = lgetxattr(from, name, value, sizeof(value));
		if (size < 0 && errno == ENODATA)
			continue;
		if (size < 0 || lsetxattr(to, name, value, (size_t)size, 0) < 0)
			return -1;
	}
	return 0;
}

#define PATH_THROUGH (NAME_MAX + 32)

static void through(char path[PATH_THROUGH], int directory, const char *name)
{
	snprintf(path, PATH_THROUGH, "/proc/self/fd/%d%s%s", directory, name[0] == 0 ? "/." : "/", name);
}

/* The owner first: a change of it clears set-id bits and capabilities. Times last: everything else changes them. */
static int dress(int from, int to, const char *name, const struct stat *info)
{
	char from_path[PATH_THROUGH], to_path[PATH_THROUGH];
	struct timespec times[2] = { info->st_atim, info->st_mtim };
	through(from_path, from, name);
	through(to_path, to, name);
	if (fchownat(to, name, info->st_uid, info->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (copy_attributes(from_path, to_path, false) < 0)
		return -1;
	if (!S_ISLNK(info->st_mode) && fchmodat(to, name, info->st_mode & 07777, 0) < 0)
		return -1;
	return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW);
}

int entry_dress(int from, int to, bool plain)
{
	struct stat info;
	char from_path[PATH_THROUGH], to_path[PATH_THROUGH];
	through(from_path, from, "");
	through(to_path, to, "");
	if (fstat(from, &info) < 0 || fchown(to, info.st_uid, info.st_gid) < 0)
		return -1;
	if (copy_attributes(from_path, to_path, plain) < 0 || fchmod(to, info.st_mode & 07777) < 0)
		return -1;
	struct timespec times[2] = { info.st_atim, info.st_mtim };
	return futimens(to, times);
}

static int copy_file(int from, const char *name, const struct stat *info, int to)
{
	struct stat opened;
	int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
	if (source < 0)
		return -1;
	if (fstat(source, &opened) < 0 || !S_ISREG(opened.st_mode) || opened.st_ino != info->st_ino) {
		close(source);
		errno = ESTALE;
		return -1;
	}
	int copy = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int result = copy < 0 ? -1 : copy_data(source, copy, opened.st_size);
	int error = errno;
	close(source);
	if (copy >= 0)
		close(copy);
	errno = error;
	return result;
}

static int copy_new(int from, const char *name, const struct stat *info, int to)
{
	char target[PATH_MAX];
	int made;
	if (S_ISREG(info->st_mode)) {
		made = copy_file(from, name, info, to);
	} else if (S_ISLNK(info->st_mode)) {
		ssize_t length = readlinkat(from, name, target, sizeof(target) - 1);
		if (length < 0)
			return -1;
		target[length] = 0;
		made = symlinkat(target, to, name);
	} else {
		made = mknodat(to, name, info->st_mode & (S_IFMT | 07777), info->st_rdev);
	}
	return made < 0 ? -1 : dress(from, to, name, info);
}

int entry_copy(int from, const char *name, int to, const struct link_area *area, unsigned source)
{
	struct stat info;
	char number[64];
	if (fstatat(from, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (info.st_nlink < 2)
		return copy_new(from, name, &info, to);
	snprintf(number, sizeof(number), "%u-%llx", source, (unsigned long long)info.st_ino);
	if (linkat(area->directory, number, to, name, 0) == 0)
		return 0;
	/* As many names as the file system allows: the area's own becomes the last of them. */
	if (errno == EMLINK)
		return renameat(area->directory, number, to, name);
	if (errno != ENOENT || copy_new(from, name, &info, to) < 0)
		return -1;
	return linkat(to, name, area->directory, number, 0);
}
