/* See paths.h. */
#include "paths.h"

#include "directory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define LINKS_MAX 40

void fault_errno(const struct request *request, const char *text)
{
	int error = errno;
	answer_fault(request->number, error == ENXIO ? FAULT_SPECIAL : FAULT_OTHER, error, text);
}

static bool path_valid(const struct request *request, const char *path)
{
	size_t length = strlen(path);
	if (path[0] == '/' && length < PATH_MAX)
		return true;
	errno = length < PATH_MAX ? EINVAL : ENAMETOOLONG;
	fault_errno(request, path);
	return false;
}

const char *path_at(const struct request *request, size_t offset)
{
	if (request->length < offset || memchr(request->body + offset, 0, request->length - offset) != NULL)
		worker_end();
	const char *path = (const char *)request->body + offset;
	return path_valid(request, path) ? path : NULL;
}

bool paths_at(const struct request *request, size_t offset, const char **first, const char **second, bool any)
{
	if (request->length <= offset)
		worker_end();
	const char *at = (const char *)request->body + offset, *end = (const char *)request->body + request->length;
	const char *middle = memchr(at, 0, (size_t)(end - at));
	if (middle == NULL || memchr(middle + 1, 0, (size_t)(end - middle - 1)) != NULL)
		worker_end();
	*first = at;
	*second = middle + 1;
	return path_valid(request, at) && (any || path_valid(request, middle + 1));
}

/* Opens `path` below `base`, making each directory that is missing. */
static int make_way(int base, const char *path)
{
	char name[NAME_MAX + 1];
	int here = openat(base, path[0] == '/' ? "/" : ".", PATH_FLAGS | O_DIRECTORY | O_CLOEXEC);
	while (here >= 0) {
		path += strspn(path, "/");
		size_t length = strcspn(path, "/");
		if (length == 0)
			return here;
		int next = -1;
		if (length > NAME_MAX) {
			errno = ENAMETOOLONG;
		} else {
			memcpy(name, path, length);
			name[length] = 0;
			next = openat(here, name, PATH_FLAGS | O_DIRECTORY | O_CLOEXEC);
			if (next < 0 && errno == ENOENT && (mkdirat(here, name, 0755) == 0 || errno == EEXIST))
				next = openat(here, name, PATH_FLAGS | O_DIRECTORY | O_CLOEXEC);
		}
		int error = errno;
		close(here);
		errno = error;
		here = next;
		path += length;
	}
	return -1;
}

static int open_parent(int base, const char *path, bool parents, char name[NAME_MAX + 1])
{
	char directory[PATH_MAX];
	size_t end = strlen(path);
	while (end > 0 && path[end - 1] == '/')
		end--;
	size_t begin = end;
	while (begin > 0 && path[begin - 1] != '/')
		begin--;
	if (end == 0 || end - begin > NAME_MAX || begin >= sizeof(directory)) {
		errno = end == 0 ? EBUSY : ENAMETOOLONG;
		return -1;
	}
	memcpy(name, path + begin, end - begin);
	name[end - begin] = 0;
	if (is_dots(name)) {
		errno = EINVAL;
		return -1;
	}
	memcpy(directory, path, begin);
	directory[begin] = 0;
	const char *where = begin == 0 ? "." : directory;
	int parent = openat(base, where, PATH_FLAGS | O_DIRECTORY | O_CLOEXEC);
	return parent < 0 && errno == ENOENT && parents ? make_way(base, where) : parent;
}

int path_parent(const char *path, bool parents, char name[NAME_MAX + 1])
{
	return open_parent(AT_FDCWD, path, parents, name);
}

const char *link_target(int directory, const char *name)
{
	static char target[PATH_MAX];
	ssize_t length = readlinkat(directory, name, target, sizeof(target) - 1);
	if (length < 0)
		return NULL;
	target[length] = 0;
	return target;
}

int path_target(const char *path, bool parents, char name[NAME_MAX + 1])
{
	size_t length = strlen(path);
	if (length > 0 && path[length - 1] == '/') {
		errno = EISDIR;
		return -1;
	}
	int here = open_parent(AT_FDCWD, path, parents, name);
	for (int links = 0; here >= 0; links++) {
		const char *target = link_target(here, name);
		if (target == NULL) {
			if (errno == EINVAL || errno == ENOENT)
				return here;
		} else if (links == LINKS_MAX) {
			errno = ELOOP;
		} else {
			char copied[PATH_MAX];
			strcpy(copied, target);
			int next = open_parent(here, copied, parents, name);
			int error = errno;
			close(here);
			errno = error;
			here = next;
			continue;
		}
		int error = errno;
		close(here);
		errno = error;
		return -1;
	}
	return -1;
}

void temporary_name(char name[TEMPORARY_NAME])
{
	static uint64_t state;
	if (state == 0 && getrandom(&state, sizeof(state), GRND_NONBLOCK) < 0)
		state = (uint64_t)(uintptr_t)&state ^ (uint64_t)getpid() << 32;
	/* splitmix64: one system call a worker, not one a file. O_EXCL decides; this only makes it rare. */
	state += 0x9e3779b97f4a7c15u;
	uint64_t mixed = (state ^ state >> 30) * 0xbf58476d1ce4e5b9u;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
	mixed ^= mixed >> 31;
	memcpy(name, ".atoll-", 7);
	for (int i = 0; i < 16; i++)
		name[7 + i] = "0123456789abcdef"[mixed >> (4 * i) & 15];
	name[23] = 0;
}

bool is_temporary(const char *name)
{
	return strncmp(name, ".atoll-", 7) == 0 && strspn(name + 7, "0123456789abcdef") == 16 && name[23] == 0;
}

int write_all(int file, const uint8_t *bytes, size_t length)
{
	while (length > 0) {
		ssize_t count = write(file, bytes, length);
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0) {
			errno = count == 0 ? EIO : errno;
			return -1;
		}
		bytes += count;
		length -= (size_t)count;
	}
	return 0;
}

static int check_regular(mode_t mode)
{
	if (S_ISREG(mode))
		return 0;
	errno = S_ISDIR(mode) ? EISDIR : S_ISLNK(mode) ? ELOOP : ENXIO;
	return -1;
}

int open_regular(int directory, const char *name, int flags, struct stat *info)
{
	/* Looked at before it is opened, because to open a FIFO or a device does something, and after, because it may have been swapped. */
	if (fstatat(directory, name, info, (flags & O_NOFOLLOW) != 0 ? AT_SYMLINK_NOFOLLOW : 0) < 0 || check_regular(info->st_mode) < 0)
		return -1;
	int file = openat(directory, name, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (file < 0)
		return -1;
	if (fstat(file, info) < 0 || check_regular(info->st_mode) < 0) {
		int error = errno;
		close(file);
		errno = error;
		return -1;
	}
	return file;
}
