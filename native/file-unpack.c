/*
 * UNPACK: the entries of an archive into a directory.
 *
 * Always true: every name is resolved beneath the directory by the kernel (RESOLVE_BENEATH), also while somebody swaps
 * its parts for links; what is in the way goes only if it is no directory. Modes and times of directories come last,
 * so that one without write permission can be filled.
 */
#include "archive.h"
#include "arena.h"
#include "beneath.h"
#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LATER_MAX (16u << 20) /* bytes of directories to be dressed at the end */
#define ATTEMPTS 16
#define IDS 65536u

enum { MAKE_TOP = 1, KEEP_OWNERS = 2, KNOWN = 3 };

/* A directory to be dressed at the end. */
struct later {
	struct later *next;
	struct archive_entry entry;
	char path[];
};

static int top;
static bool keep_owners;
static struct later *later;
static size_t later_bytes;

/* The directory that holds `path`, and its last name. */
static int open_parent(const char *path, bool make, const char **name)
{
	const char *slash = strrchr(path, '/');
	*name = slash == NULL ? path : slash + 1;
	if (strlen(*name) > NAME_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return beneath_directory(top, path, slash == NULL ? 0 : (size_t)(slash - path), make);
}

/* Owner, mode and time. Who may not give files away keeps them, without what their mode granted to run as the owner. */
static int dress(int file, const struct archive_entry *entry)
{
	uint32_t mode = entry->mode;
	struct timespec times[2] = { { .tv_nsec = UTIME_NOW }, { .tv_sec = (time_t)entry->mtime } };
	if (keep_owners && entry->uid < IDS && entry->gid < IDS && fchown(file, (uid_t)entry->uid, (gid_t)entry->gid) < 0)
		mode &= 01777;
	if (fchmod(file, mode) < 0)
		return -1;
	futimens(file, times);
	return 0;
}

static int write_file(int directory, const char *name, const struct archive_entry *entry)
{
	const uint8_t *bytes;
	size_t length;
	int file = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600), result;
	if (file < 0)
		return -1;
	while ((result = archive_bytes(&bytes, &length)) > 0)
		if ((result = write_all(file, bytes, length)) < 0)
			break;
	if (result == 0)
		result = dress(file, entry);
	int error = errno;
	close(file);
	errno = error;
	return result;
}

static int link_file(int directory, const char *name, char *target)
{
	const char *target_name;
	if (!archive_clean(target) || *target == 0) {
		errno = EINVAL;
		return -1;
	}
	int target_directory = open_parent(target, false, &target_name);
	if (target_directory < 0)
		return -1;
	int result = linkat(target_directory, target_name, directory, name, 0), error = errno;
	close(target_directory);
	errno = error;
	return result;
}

/* What has no content: a link or a FIFO. */
static int make_node(int directory, const char *name, const struct archive_entry *entry)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_NOW }, { .tv_sec = (time_t)entry->mtime } };
	if ((entry->type == TAR_LINK ? symlinkat(entry->target, directory, name) : mkfifoat(directory, name, entry->mode & 0777)) < 0)
		return -1;
	utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW);
	if (!keep_owners || entry->uid >= IDS || entry->gid >= IDS)
		return 0;
	return fchownat(directory, name, (uid_t)entry->uid, (gid_t)entry->gid, AT_SYMLINK_NOFOLLOW) < 0 && errno != EPERM ? -1 : 0;
}

/* A directory, which may be there. */
static int make_directory(int parent, const char *name)
{
	struct stat info;
	if (mkdirat(parent, name, 0700) == 0)
		return 0;
	if (errno != EEXIST || fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	errno = EEXIST;
	return S_ISDIR(info.st_mode) ? 0 : -1;
}

/* Makes an entry under a name that must be free: 0, or -1 with errno. */
static int make_entry(int directory, const char *name, const struct archive_entry *entry)
{
	switch (entry->type) {
	case TAR_FILE:
	case TAR_CONTIGUOUS: return write_file(directory, name, entry);
	case TAR_HARD_LINK: return link_file(directory, name, entry->target);
	case TAR_DIRECTORY: return make_directory(directory, name);
	case TAR_LINK:
	case TAR_FIFO: return make_node(directory, name, entry);
	case TAR_CHARACTER:
	case TAR_DEVICE: errno = EPERM; return -1;
	default: errno = EINVAL; return -1;
	}
}

/* Past the bound a directory keeps the mode it was made with. */
static void dress_later(const struct archive_entry *entry)
{
	size_t length = strlen(entry->name), size = sizeof(struct later) + length + 1;
	struct later *next = later_bytes + size > LATER_MAX ? NULL : arena_take(size);
	if (next == NULL)
		return;
	*next = (struct later){ .next = later, .entry = *entry };
	memcpy(next->path, entry->name, length + 1);
	later = next;
	later_bytes += size;
}

/* Last come, first served: a directory before the one it is in. */
static void dress_directories(void)
{
	while (later != NULL) {
		struct later *next = later->next;
		const char *name;
		int parent = open_parent(later->path, false, &name);
		int directory = parent < 0 ? -1 : openat(parent, name, DIRECTORY_ONLY | O_NOFOLLOW);
		if (directory >= 0) {
			dress(directory, &later->entry);
			close(directory);
		}
		if (parent >= 0)
			close(parent);
		arena_give(later);
		later = next;
	}
	later_bytes = 0;
}

static int unpack_entry(const struct archive_entry *entry)
{
	const char *name;
	int parent = open_parent(entry->name, true, &name), result = -1;
	if (parent < 0)
		return -1;
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		result = make_entry(parent, name, entry);
		if (result == 0 || errno != EEXIST)
			break;
		/* A directory is not removed for anything; unlinkat says EISDIR for it. */
		if (unlinkat(parent, name, 0) < 0 && errno != ENOENT)
			break;
		errno = EEXIST;
	}
	if (result == 0 && entry->type == TAR_DIRECTORY)
		dress_later(entry);
	int error = errno;
	close(parent);
	errno = error;
	return result;
}

static void unpack(const struct request *request, const char *path)
{
	struct archive_entry entry;
	int result;
	archive_begin(request->number);
	/* The directory itself is the caller's. */
	while ((result = archive_next(&entry)) > 0)
		if (entry.name[0] != 0 && (result = unpack_entry(&entry)) < 0)
			break;
	int error = errno;
	dress_directories();
	if (result < 0)
		answer_fault(request->number, FAULT_OTHER, error, archive_name() != NULL ? archive_name() : path);
	/* Also what follows the end of an archive, such as the rest of its last record. */
	archive_end();
	if (result == 0)
		answer_done(request->number);
}

static int open_top(const char *path, bool make)
{
	char name[NAME_MAX + 1];
	int directory = open(path, DIRECTORY_ONLY);
	if (directory >= 0 || errno != ENOENT || !make)
		return directory;
	int parent = path_parent(path, true, name);
	if (parent < 0)
		return -1;
	if (mkdirat(parent, name, 0755) == 0 || errno == EEXIST)
		directory = openat(parent, name, DIRECTORY_ONLY);
	int error = errno;
	close(parent);
	errno = error;
	return directory;
}

void serve_unpack(const struct request *request)
{
	const char *path = path_at(request, 1);
	if (path == NULL) {
		data_skip(request->number);
		return;
	}
	uint8_t flags = request->body[0];
	if ((flags & ~KNOWN) != 0)
		worker_end();
	keep_owners = (flags & KEEP_OWNERS) != 0;
	top = open_top(path, (flags & MAKE_TOP) != 0);
	if (top < 0) {
		fault_errno(request, path);
		data_skip(request->number);
		return;
	}
	unpack(request, path);
	close(top);
}
