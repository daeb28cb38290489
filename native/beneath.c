/* See beneath.h. */
#include "beneath.h"

#include "kernel.h"
#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define STRETCH_MAX 3584u /* bytes of a path that one call resolves */
#define ATTEMPTS 64

static int open_part(int base, const char *part, size_t length)
{
	char text[STRETCH_MAX + NAME_MAX + 2];
	struct open_request request = { .flags = PATH_FLAGS | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_BELOW | RESOLVE_NO_MAGIC };
	if (length >= sizeof(text)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(text, part, length);
	text[length] = 0;
	/* EAGAIN: something was renamed while the kernel looked, and it could not rule out that we left. */
	for (int attempt = 0;; attempt++) {
		int fd = kernel_openat2(base, length == 0 ? "." : text, &request);
		if (fd >= 0 || errno != EAGAIN || attempt == ATTEMPTS)
			return fd;
	}
}

static void close_keeping_errno(int fd)
{
	int error = errno;
	close(fd);
	errno = error;
}

/* Resolves as much as possible with each call. */
static int jump(int top, const char *path, size_t length)
{
	int here = top;
	for (size_t at = 0; here >= 0;) {
		size_t end = length;
		if (length - at > STRETCH_MAX) {
			end = at + STRETCH_MAX;
			while (end > at && path[end] != '/')
				end--;
			if (end == at)
				end = at + strcspn(path + at, "/");
		}
		int next = open_part(here, path + at, end - at);
		if (here != top)
			close_keeping_errno(here);
		here = next;
		if (end >= length)
			return here;
		at = end + 1;
	}
	return -1;
}

/* Name after name, making what is missing. Short paths begin at the top again, so that links between its parts work. */
static int make_way(int top, const char *path, size_t length)
{
	char name[NAME_MAX + 1];
	int here = open_part(top, "", 0);
	for (size_t at = 0; here >= 0 && at < length;) {
		size_t end = at + strcspn(path + at, "/");
		if (end > length)
			end = length;
		if (end - at > NAME_MAX) {
			close(here);
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(name, path + at, end - at);
		name[end - at] = 0;
		int next = end <= STRETCH_MAX ? open_part(top, path, end) : open_part(here, name, end - at);
		if (next < 0 && errno == ENOENT && (mkdirat(here, name, 0755) == 0 || errno == EEXIST))
			next = end <= STRETCH_MAX ? open_part(top, path, end) : open_part(here, name, end - at);
		close_keeping_errno(here);
		here = next;
		at = end + 1;
	}
	return here;
}

int beneath_directory(int top, const char *path, size_t length, bool make)
{
	int directory = jump(top, path, length);
	return directory < 0 && errno == ENOENT && make ? make_way(top, path, length) : directory;
}
