/*
 * `atoll-init unpack DIRECTORY`: writes the tree of an image. Its caller has verified, decompressed and judged the layers and says entry
 * by entry what is to be made or removed (PROTOCOL.md); here nothing is decided.
 *
 * Always true: the directory is ours alone (0700) and the root of this process before the first byte is read, and only the powers that owners,
 * modes and file capabilities need are left. Every way is resolved beneath it by the kernel, through no link and into no other file system.
 * What is to be made must not be there and what is to be changed or removed must: a caller that is mistaken about the tree is refused.
 */
#include "image-unpack.h"

#include "bytes.h"
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define NO_LINKS 0x04u
#define NO_OTHER_DEVICE 0x01u
#define PATH_ONLY 010000000 /* O_PATH */
#define READ_AT_ONCE (1u << 20)
#define USER_PREFIX "user."

enum frame_type { FRAME_ENTRY = 1, FRAME_DATA = 2, FRAME_REMOVE = 3, FRAME_TIMES = 4, FRAME_END = 5, FRAME_DONE = 16, FRAME_FAILED = 17 };

enum entry_kind { KIND_FILE = 'f', KIND_DIRECTORY = 'd', KIND_KNOWN_DIRECTORY = 'D', KIND_LINK = 'l', KIND_HARD_LINK = 'h', KIND_FIFO = 'p' };

struct entry {
	char kind;
	uint32_t mode, uid, gid;
	struct timespec times[2];
	uint64_t size;
	char path[PATH_MAX], target[PATH_MAX];
	const uint8_t *attributes, *end;
};

static int top;
static struct entry entry;
/* The file being written, and how much of it is to come. */
static int file = -1;
static uint64_t left;
/* The directory that the last entry was in. */
static int parent = -1;
static char parent_path[PATH_MAX];
/* What a failure tells. */
static const char *step = "start";

static int fail(int error)
{
	errno = error;
	return -1;
}

static void forget_parent(void)
{
	if (parent >= 0)
		close(parent);
	parent = -1;
}

/* The directory that holds `path`, which stays ours, and its last name. */
static int open_parent(const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	size_t length = slash == NULL ? 0 : (size_t)(slash - path);
	*name = slash == NULL ? path : slash + 1;
	if (parent >= 0 && strlen(parent_path) == length && memcmp(parent_path, path, length) == 0)
		return parent;
	forget_parent();
	memcpy(parent_path, path, length);
	parent_path[length] = 0;
	struct open_request request = { .flags = PATH_ONLY | O_DIRECTORY | O_CLOEXEC,
					.resolve = RESOLVE_BELOW | RESOLVE_NO_MAGIC | NO_LINKS | NO_OTHER_DEVICE };
	parent = kernel_openat2(top, length == 0 ? "." : parent_path, &request);
	return parent;
}

/* What an earlier layer said about a directory does not count any more. */
static int clear_attributes(int directory)
{
	static char names[XATTR_LIST_MAX];
	ssize_t length = flistxattr(directory, names, sizeof(names));
	if (length < 0)
		return errno == EOPNOTSUPP ? 0 : -1;
	for (const char *name = names; name < names + length; name += strlen(name) + 1)
		if (strncmp(name, USER_PREFIX, strlen(USER_PREFIX)) == 0 && fremovexattr(directory, name) < 0)
			return -1;
	return 0;
}

static int set_attributes(int target)
{
	char name[XATTR_NAME_MAX + 1];
	for (const uint8_t *at = entry.attributes; at < entry.end;) {
		if (entry.end - at < 6)
			return fail(EPROTO);
		size_t name_length = get_u16(at), length = get_u32(at + 2);
		at += 6;
		if (name_length > XATTR_NAME_MAX || (size_t)(entry.end - at) < name_length + length)
			return fail(EPROTO);
		memcpy(name, at, name_length);
		name[name_length] = 0;
		if (fsetxattr(target, name, at + name_length, length, 0) < 0)
			return -1;
		at += name_length + length;
	}
	return 0;
}

/* The owner first: a change of it clears set-id bits and capabilities. Times last: everything else changes them. */
static int dress(int target)
{
	step = "owner";
	if (fchown(target, entry.uid, entry.gid) < 0)
		return -1;
	step = "mode";
	if (fchmod(target, entry.mode) < 0)
		return -1;
	step = "attribute";
	if (set_attributes(target) < 0)
		return -1;
	step = "time";
	return futimens(target, entry.times);
}

static int finish_file(void)
{
	int result = dress(file), error = errno;
	close(file);
	file = -1;
	return result < 0 ? fail(error) : 0;
}

static int dress_directory(int directory, bool known)
{
	if (directory < 0)
		return -1;
	int result = known && clear_attributes(directory) < 0 ? -1 : dress(directory), error = errno;
	close(directory);
	return result < 0 ? fail(error) : 0;
}

/* What has no descriptor to dress it by. */
static int dress_name(int directory, const char *name)
{
	step = "owner";
	if (fchownat(directory, name, entry.uid, entry.gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	/* A link has no mode. The name is a FIFO that was just made in a directory that is ours alone. */
	if (entry.kind == KIND_FIFO && fchmodat(directory, name, entry.mode, 0) < 0)
		return -1;
	step = "time";
	return utimensat(directory, name, entry.times, AT_SYMLINK_NOFOLLOW);
}

static int make_hard_link(void)
{
	const char *name, *target_name;
	int target_parent = open_parent(entry.target, &target_name);
	if (target_parent < 0 || (target_parent = dup(target_parent)) < 0)
		return -1;
	int directory = open_parent(entry.path, &name);
	int result = directory < 0 ? -1 : linkat(target_parent, target_name, directory, name, 0), error = errno;
	close(target_parent);
	return result < 0 ? fail(error) : 0;
}

static int make_entry(void)
{
	const char *name;
	step = "make";
	if (entry.kind == KIND_HARD_LINK)
		return make_hard_link();
	if (entry.path[0] == 0)
		return entry.kind == KIND_KNOWN_DIRECTORY ? dress_directory(openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), true) : fail(EPROTO);
	int directory = open_parent(entry.path, &name);
	if (directory < 0)
		return -1;
	switch (entry.kind) {
	case KIND_FILE:
		file = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		left = entry.size;
		return file < 0 ? -1 : left == 0 ? finish_file() : 0;
	case KIND_DIRECTORY:
		if (mkdirat(directory, name, 0700) < 0)
			return -1;
		return dress_directory(openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), false);
	case KIND_KNOWN_DIRECTORY:
		return dress_directory(openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), true);
	case KIND_LINK: return symlinkat(entry.target, directory, name) < 0 ? -1 : dress_name(directory, name);
	case KIND_FIFO: return mkfifoat(directory, name, 0600) < 0 ? -1 : dress_name(directory, name);
	default: return fail(EPROTO);
	}
}

static bool take_path(char to[PATH_MAX], const uint8_t *from, size_t length)
{
	if (length >= PATH_MAX || memchr(from, 0, length) != NULL)
		return false;
	memcpy(to, from, length);
	to[length] = 0;
	return true;
}

static struct timespec take_time(const uint8_t *at)
{
	return (struct timespec){ .tv_sec = (time_t)get_u64(at), .tv_nsec = (long)get_u32(at + 8) };
}

/* kind, mode, uid, gid, seconds, nanoseconds, size, lengths of path and target; path, target, attributes */
static int on_entry(const uint8_t *body, size_t length)
{
	const size_t head = 1 + 4 + 4 + 4 + 8 + 4 + 8 + 2 + 2;
	step = "entry";
	if (file >= 0 || length < head)
		return fail(EPROTO);
	size_t path_length = get_u16(body + 33), target_length = get_u16(body + 35);
	entry.kind = (char)body[0];
	entry.mode = get_u32(body + 1);
	entry.uid = get_u32(body + 5);
	entry.gid = get_u32(body + 9);
	entry.times[0] = entry.times[1] = take_time(body + 13);
	entry.size = get_u64(body + 25);
	if (length - head < path_length + target_length || !take_path(entry.path, body + head, path_length) ||
	    !take_path(entry.target, body + head + path_length, target_length))
		return fail(EPROTO);
	entry.attributes = body + head + path_length + target_length;
	entry.end = body + length;
	/* A file is dressed when its last byte is there; what stands in this frame is gone by then. */
	static uint8_t kept[FRAME_LENGTH_MAX];
	size_t attributes = (size_t)(entry.end - entry.attributes);
	memcpy(kept, entry.attributes, attributes);
	entry.attributes = kept;
	entry.end = kept + attributes;
	return make_entry();
}

static int on_data(const uint8_t *bytes, size_t length)
{
	step = "write";
	if (file < 0 || length > left)
		return fail(EPROTO);
	left -= length;
	while (length > 0) {
		ssize_t count = write(file, bytes, length);
		if (count < 0 && errno != EINTR)
			return -1;
		bytes += count < 0 ? 0 : count;
		length -= count < 0 ? 0 : (size_t)count;
	}
	return left == 0 ? finish_file() : 0;
}

static int on_remove(const uint8_t *body, size_t length)
{
	const char *name;
	step = "remove";
	if (file >= 0 || length < 2 || !take_path(entry.path, body + 1, length - 1))
		return fail(EPROTO);
	int directory = open_parent(entry.path, &name);
	int result = directory < 0 ? -1 : unlinkat(directory, name, body[0] != 0 ? AT_REMOVEDIR : 0), error = errno;
	/* The name may soon stand for another directory. */
	if (body[0] != 0)
		forget_parent();
	return result < 0 ? fail(error) : 0;
}

static int on_times(const uint8_t *body, size_t length)
{
	const char *name;
	step = "time";
	if (file >= 0 || length < 13 || !take_path(entry.path, body + 12, length - 12))
		return fail(EPROTO);
	struct timespec times[2] = { take_time(body), take_time(body) };
	int directory = open_parent(entry.path, &name);
	return directory < 0 ? -1 : utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW);
}

/* 1 at the end, 0 to go on, -1 with errno. */
static int on_frame(uint8_t type, const uint8_t *body, size_t length)
{
	switch (type) {
	case FRAME_ENTRY: return on_entry(body, length);
	case FRAME_DATA: return on_data(body, length);
	case FRAME_REMOVE: return on_remove(body, length);
	case FRAME_TIMES: return on_times(body, length);
	case FRAME_END:
		step = "sync";
		return file >= 0 ? fail(EPROTO) : syncfs(top) < 0 ? -1 : 1;
	default: step = "frame"; return fail(EPROTO);
	}
}

static int serve(void)
{
	struct buffer input = { 0 };
	for (;;) {
		const uint8_t *body;
		size_t length;
		uint8_t type;
		int result;
		while ((result = frame_parse(input.data + input.begin, buffer_length(&input), &type, &body, &length)) > 0) {
			if ((result = on_frame(type, body, length)) != 0)
				return result;
			buffer_consume(&input, FRAME_HEADER + length);
		}
		step = "read";
		if (result < 0)
			return fail(EPROTO);
		uint8_t *room = buffer_reserve(&input, READ_AT_ONCE);
		ssize_t count = room == NULL ? fail(ENOMEM) : read(STDIN_FILENO, room, READ_AT_ONCE);
		/* Whoever goes away without an END leaves a tree that is not whole. */
		if (count == 0)
			return fail(ECONNRESET);
		if (count < 0 && errno != EINTR)
			return -1;
		if (count > 0)
			buffer_added(&input, (size_t)count);
	}
}

static int keep_few_powers(void)
{
	const uint32_t few = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER | 1u << CAP_FSETID | 1u << CAP_SETFCAP % 32;
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { .effective = few, .permitted = few } };
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &header, data) < 0 ? -1 : 0;
}

static int enter(const char *directory)
{
	struct stat info;
	step = "enter";
	umask(0);
	top = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (top < 0 || fstat(top, &info) < 0)
		return -1;
	if (info.st_uid != geteuid() || (info.st_mode & 07777) != 0700)
		return fail(EPERM);
	if (fchdir(top) < 0 || chroot(".") < 0)
		return -1;
	return keep_few_powers();
}

static void answer(int result)
{
	struct buffer output = { 0 };
	int error = errno;
	struct frame frame = frame_begin(&output, result > 0 ? FRAME_DONE : FRAME_FAILED);
	if (result <= 0) {
		frame_u32(&frame, (uint32_t)error);
		frame_u16(&frame, (uint16_t)strlen(step));
		frame_bytes(&frame, step, strlen(step));
		frame_bytes(&frame, entry.path, strlen(entry.path));
	}
	if (!frame_end(&frame))
		return;
	while (buffer_length(&output) > 0) {
		ssize_t count = write(STDOUT_FILENO, output.data + output.begin, buffer_length(&output));
		if (count < 0)
			return;
		buffer_consume(&output, (size_t)count);
	}
}

int image_unpack_main(const char *directory)
{
	int result = enter(directory) < 0 ? -1 : serve();
	answer(result);
	return result > 0 ? 0 : 1;
}
