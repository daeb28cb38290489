/*
 * WRITE: a new file takes the place of the old one by rename, or bytes are appended in place.
 *
 * Always true: until the client's DONE has come nothing is changed, except by an append and by a write in place (where
 * the directory takes no new file); whatever ends the worker takes the new file with it. It has a name of its own only
 * for the moment before the rename (or all the time where the file system knows no unnamed files).
 */
#include "bytes.h"
#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <unistd.h>

enum { APPEND = 1, PARENTS = 2, EXCLUSIVE = 4, EXPECT = 8, OWNER = 16, KNOWN = 31 };

struct writing {
	uint8_t flags;
	uint32_t mode, uid, gid;
	uint64_t expect_inode, expect_ctime;
	const char *path;
	int parent, file;
	char name[NAME_MAX + 1];
	char temporary[TEMPORARY_NAME]; /* "": none */
	bool unnamed;                   /* a file without any name yet */
	struct stat old;
	bool exists;
};

static struct writing writing;

static void tidy(void)
{
	if (writing.temporary[0] != 0)
		unlinkat(writing.parent, writing.temporary, 0);
	writing.temporary[0] = 0;
}

static bool expected(const struct stat *info)
{
	return info->st_ino == writing.expect_inode &&
	       (uint64_t)info->st_ctim.tv_sec * 1000000000u + (uint64_t)info->st_ctim.tv_nsec == writing.expect_ctime;
}

/* Looks at what is there now: 0, or the code of a fault with errno. */
static uint16_t look(void)
{
	writing.exists = fstatat(writing.parent, writing.name, &writing.old, AT_SYMLINK_NOFOLLOW) == 0;
	if (!writing.exists && errno != ENOENT)
		return FAULT_OTHER;
	if ((writing.flags & EXPECT) != 0 && (!writing.exists || !expected(&writing.old))) {
		errno = writing.exists ? ESTALE : ENOENT;
		return FAULT_CHANGED;
	}
	if (!writing.exists)
		return 0;
	if ((writing.flags & EXCLUSIVE) != 0) {
		errno = EEXIST;
		return FAULT_OTHER;
	}
	if (S_ISREG(writing.old.st_mode))
		return 0;
	errno = S_ISDIR(writing.old.st_mode) ? EISDIR : S_ISLNK(writing.old.st_mode) ? ELOOP : ENXIO;
	return errno == ENXIO ? FAULT_SPECIAL : FAULT_OTHER;
}

static int open_in_place(int flags)
{
	struct stat info;
	int file = openat(writing.parent, writing.name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags, 0644);
	if (file < 0)
		return -1;
	if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && ((writing.flags & EXPECT) == 0 || expected(&info)))
		return file;
	close(file);
	errno = ESTALE;
	return -1;
}

static int open_new(void)
{
	/* The mode it would get anyway saves a call; one that is replaced may be secret until it has its own. */
	mode_t mode = writing.exists || writing.mode != KEEP ? 0600 : 0644;
	/* Nothing is left of it whatever happens to us, and nobody sees it before it is whole. Not every file system can. */
	int unnamed = openat(writing.parent, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
	writing.unnamed = unnamed >= 0;
	if (writing.unnamed)
		return unnamed;
	for (int attempt = 0; attempt < 8; attempt++) {
		temporary_name(writing.temporary);
		int file = openat(writing.parent, writing.temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
		if (file >= 0)
			return file;
		writing.temporary[0] = 0;
		if (errno != EEXIST)
			break;
	}
	return -1;
}

static uint16_t begin(void)
{
	writing.parent = path_target(writing.path, (writing.flags & PARENTS) != 0, writing.name);
	if (writing.parent < 0)
		return FAULT_OTHER;
	uint16_t code = look();
	if (code != 0)
		return code;
	if ((writing.flags & APPEND) != 0) {
		writing.file = open_in_place(O_APPEND | (writing.exists ? 0 : O_CREAT | ((writing.flags & EXCLUSIVE) != 0 ? O_EXCL : 0)));
	} else {
		writing.file = open_new();
		/* A file that may be written in a directory that may not (procfs: ENOENT): any program would simply write it. */
		if (writing.file < 0 && writing.exists && (errno == EACCES || errno == EPERM || errno == EROFS || errno == ENOENT))
			writing.file = open_in_place(O_TRUNC);
	}
	return writing.file < 0 ? FAULT_OTHER : 0;
}

/* Owner and mode of what was there, or what was asked for. */
static int dress(bool fresh)
{
	uint32_t uid = KEEP, gid = KEEP, mode = writing.mode;
	bool owned = (writing.flags & OWNER) != 0;
	if (fresh && writing.exists) {
		uid = writing.old.st_uid;
		gid = writing.old.st_gid;
	}
	/* Also in place when the owner changes: that takes the set-id bits away. */
	if ((fresh || owned) && writing.exists && mode == KEEP)
		mode = writing.old.st_mode & 07777;
	if (owned) {
		if (fchown(writing.file, writing.uid == KEEP ? uid : writing.uid, writing.gid == KEEP ? gid : writing.gid) < 0)
			return -1;
	} else if (uid != KEEP && (uid != geteuid() || gid != getegid()) && fchown(writing.file, uid, gid) < 0) {
		/* The old owner cannot be kept; then neither can what its mode granted to run as it. */
		mode = mode == KEEP ? KEEP : mode & 01777;
	}
	return mode == KEEP ? 0 : fchmod(writing.file, mode & 07777);
}

/* Gives the unnamed file a name: 0, or -1 with errno. */
static int give_name(const char *name)
{
	char own[40];
	if (linkat(writing.file, "", writing.parent, name, AT_EMPTY_PATH) == 0)
		return 0;
	/* Before Linux 6.10 that took a capability; the long way takes none. */
	if (errno != ENOENT && errno != EPERM)
		return -1;
	snprintf(own, sizeof(own), "/proc/self/fd/%d", writing.file);
	return linkat(AT_FDCWD, own, writing.parent, name, AT_SYMLINK_FOLLOW);
}

static uint16_t finish(void)
{
	bool fresh = writing.temporary[0] != 0 || writing.unnamed;
	if (dress(fresh || !writing.exists) < 0)
		return FAULT_OTHER;
	if (!fresh)
		return 0;
	if (writing.unnamed && !writing.exists) {
		if (give_name(writing.name) == 0)
			return 0;
		/* Somebody was faster: theirs is replaced, unless that is just what must not be. */
		if (errno != EEXIST || (writing.flags & EXCLUSIVE) != 0)
			return FAULT_OTHER;
	}
	if (writing.unnamed) {
		temporary_name(writing.temporary);
		if (give_name(writing.temporary) < 0) {
			writing.temporary[0] = 0;
			return FAULT_OTHER;
		}
	}
	if ((writing.flags & EXPECT) != 0) {
		uint16_t code = look();
		if (code != 0)
			return code;
	}
	if (renameat2(writing.parent, writing.temporary, writing.parent, writing.name, (writing.flags & EXCLUSIVE) != 0 ? RENAME_NOREPLACE : 0) < 0)
		return FAULT_OTHER;
	writing.temporary[0] = 0;
	return 0;
}

static void write_data(const struct request *request)
{
	const uint8_t *bytes;
	size_t length;
	int more;
	uint16_t code = begin();
	if (code != 0) {
		answer_fault(request->number, code, errno, writing.path);
		data_skip(request->number);
		return;
	}
	while ((more = data_next(request->number, &bytes, &length)) > 0) {
		if (write_all(writing.file, bytes, length) < 0) {
			fault_errno(request, writing.path);
			data_skip(request->number);
			return;
		}
	}
	if (more < 0) {
		answer_fault(request->number, FAULT_OTHER, ECANCELED, writing.path);
		return;
	}
	struct stat info;
	code = finish();
	if (code != 0 || fstat(writing.file, &info) < 0)
		answer_fault(request->number, code != 0 ? code : FAULT_OTHER, errno, writing.path);
	else
		answer_stat(request->number, &info, NULL, NULL);
}

void serve_write(const struct request *request)
{
	size_t at = 5;
	if (request->length < at)
		worker_end();
	writing = (struct writing){ .flags = request->body[0], .mode = get_u32(request->body + 1), .parent = -1, .file = -1 };
	if ((writing.flags & ~KNOWN) != 0 || request->length < at + ((writing.flags & EXPECT) != 0 ? 16 : 0) + ((writing.flags & OWNER) != 0 ? 8 : 0))
		worker_end();
	if ((writing.flags & EXPECT) != 0) {
		writing.expect_inode = get_u64(request->body + at);
		writing.expect_ctime = get_u64(request->body + at + 8);
		at += 16;
	}
	if ((writing.flags & OWNER) != 0) {
		writing.uid = get_u32(request->body + at);
		writing.gid = get_u32(request->body + at + 4);
		at += 8;
	}
	writing.path = path_at(request, at);
	if (writing.path == NULL) {
		data_skip(request->number);
		return;
	}
	worker_on_end(tidy);
	write_data(request);
	tidy();
	worker_on_end(NULL);
	if (writing.file >= 0)
		close(writing.file);
	if (writing.parent >= 0)
		close(writing.parent);
}
