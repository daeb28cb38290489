/* File requests that are one step for the kernel: STAT, READ, MAKE, MOVE, MODE. */
#include "bytes.h"
#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <unistd.h>

#define COPIED (32u << 10) /* of each frame: it goes out together with its head, so that nobody is woken for that alone */
#define UNSIZED_MAX (64u << 20) /* how much of a file without a size (procfs) is read */

void serve_stat(const struct request *request)
{
	struct stat info;
	const char *path = path_at(request, 1);
	if (path == NULL)
		return;
	if (fstatat(AT_FDCWD, path, &info, request->body[0] != 0 ? 0 : AT_SYMLINK_NOFOLLOW) < 0) {
		fault_errno(request, path);
		return;
	}
	answer_stat(request->number, &info, NULL, S_ISLNK(info.st_mode) ? link_target(AT_FDCWD, path) : NULL);
}

/* `sized`: there are so many bytes, so a frame can be announced before it is read. */
static void send_file(const struct request *request, int file, const char *path, uint64_t offset, uint64_t left, bool sized)
{
	while (left > 0) {
		size_t most = left < DATA_MAX ? (size_t)left : DATA_MAX;
		size_t first = most < COPIED ? most : COPIED;
		/* All of the frame: its length is checked before what follows it is known. */
		uint8_t *room = data_room(most);
		ssize_t count = pread(file, room, first, (off_t)offset);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0) {
			fault_errno(request, path);
			return;
		}
		if (count == 0)
			break;
		if ((size_t)count == first && most > first && sized) {
			data_send_file(request->number, first, file, offset + first, most - first);
			count = (ssize_t)most;
		} else {
			data_send(request->number, (size_t)count);
		}
		offset += (uint64_t)count;
		left -= (uint64_t)count;
	}
	answer_done(request->number);
}

void serve_read(const struct request *request)
{
	struct stat info;
	const char *path = path_at(request, 16);
	if (path == NULL)
		return;
	uint64_t offset = get_u64(request->body), length = get_u64(request->body + 8);
	int file = open_regular(AT_FDCWD, path, O_RDONLY, &info);
	if (file < 0) {
		fault_errno(request, path);
		return;
	}
	/* The size at the opening: a file that grows is not read for ever. */
	uint64_t end = info.st_size > 0 ? (uint64_t)info.st_size : UNSIZED_MAX;
	uint64_t left = offset < end ? end - offset : 0;
	answer_stat(request->number, &info, NULL, NULL);
	send_file(request, file, path, offset, length < left ? length : left, info.st_size > 0);
	close(file);
}

static int make_directory(const char *path, bool parents, uint32_t mode)
{
	char name[NAME_MAX + 1];
	struct stat info;
	int parent = path_parent(path, parents, name);
	if (parent < 0)
		return errno == EBUSY ? (parents ? 0 : (errno = EEXIST, -1)) : -1;
	int result = mkdirat(parent, name, mode == KEEP ? 0755 : mode & 07777);
	if (result == 0 && mode != KEEP)
		result = fchmodat(parent, name, mode & 07777, 0);
	else if (result < 0 && errno == EEXIST && parents && fstatat(parent, name, &info, 0) == 0)
		result = S_ISDIR(info.st_mode) ? 0 : (errno = EEXIST, -1);
	int error = errno;
	close(parent);
	errno = error;
	return result;
}

void serve_make(const struct request *request)
{
	const char *path = path_at(request, 5);
	if (path == NULL)
		return;
	if (make_directory(path, request->body[0] != 0, get_u32(request->body + 1)) < 0)
		fault_errno(request, path);
	else
		answer_done(request->number);
}

void serve_move(const struct request *request)
{
	const char *from, *to;
	if (!paths_at(request, 1, &from, &to, false))
		return;
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, request->body[0] != 0 ? 0 : RENAME_NOREPLACE) < 0)
		fault_errno(request, from);
	else
		answer_done(request->number);
}

void serve_mode(const struct request *request)
{
	const char *path = path_at(request, 12);
	if (path == NULL)
		return;
	uint32_t mode = get_u32(request->body), uid = get_u32(request->body + 4), gid = get_u32(request->body + 8);
	/* The owner first: a change of owner clears the set-user-id bit that the mode may ask for. */
	if (((uid != KEEP || gid != KEEP) && fchownat(AT_FDCWD, path, uid, gid, 0) < 0) ||
	    (mode != KEEP && fchmodat(AT_FDCWD, path, mode & 07777, 0) < 0))
		fault_errno(request, path);
	else
		answer_done(request->number);
}
