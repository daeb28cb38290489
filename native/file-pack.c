/*
 * PACK: a tree, or one file, as a tar stream.
 *
 * Always true: every entry has as many bytes as its header says; a file that shrinks meanwhile is filled up with zeros,
 * one that grows is cut. Hard links become files of their own.
 */
#include "arena.h"
#include "paths.h"
#include "tar.h"
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct packing {
	const struct request *request;
	uint8_t *room; /* of the DATA frame that is being filled; NULL: none yet */
	size_t used;
	char *name; /* of the entry, "./" in front */
	size_t name_capacity;
};

static void send_room(struct packing *packing)
{
	if (packing->room != NULL && packing->used > 0)
		data_send(packing->request->number, packing->used);
	packing->room = NULL;
	packing->used = 0;
}

/* Where at least one byte fits, and how many do. */
static uint8_t *room_for(struct packing *packing, size_t *size)
{
	if (packing->room != NULL && packing->used == DATA_MAX)
		send_room(packing);
	if (packing->room == NULL)
		packing->room = data_room(DATA_MAX);
	*size = DATA_MAX - packing->used;
	return packing->room + packing->used;
}

static void put(struct packing *packing, const uint8_t *bytes, size_t length)
{
	while (length > 0) {
		size_t size;
		uint8_t *room = room_for(packing, &size);
		size_t count = length < size ? length : size;
		/* NULL: zeros. */
		if (bytes == NULL)
			memset(room, 0, count);
		else
			memcpy(room, bytes, count);
		bytes = bytes == NULL ? NULL : bytes + count;
		packing->used += count;
		length -= count;
	}
}

static void pad(struct packing *packing, uint64_t size)
{
	put(packing, NULL, (size_t)(-size & (TAR_BLOCK - 1)));
}

static int put_header(struct packing *packing, char type, const char *name, const char *target, const struct stat *info, uint64_t size)
{
	uint8_t block[TAR_BLOCK];
	if (!tar_fits(name, target, size)) {
		char digits[24];
		size_t target_length = target == NULL ? 0 : strlen(target), at = sizeof(digits), used = 0;
		for (uint64_t left = size; at == sizeof(digits) || left > 0; left /= 10)
			digits[--at] = (char)('0' + left % 10);
		uint8_t *records = arena_take(strlen(name) + target_length + 256);
		if (records == NULL) {
			errno = ENOMEM;
			return -1;
		}
		used += tar_pax_record(records, "path", name, strlen(name));
		if (target_length > 0)
			used += tar_pax_record(records + used, "linkpath", target, target_length);
		used += tar_pax_record(records + used, "size", digits + at, sizeof(digits) - at);
		struct stat nobody = { .st_mode = 0644, .st_mtim = info->st_mtim };
		tar_format(block, TAR_PAX, "././@PaxHeader", NULL, &nobody, used);
		put(packing, block, TAR_BLOCK);
		put(packing, records, used);
		pad(packing, used);
		arena_give(records);
	}
	tar_format(block, type, name, target, info, size);
	put(packing, block, TAR_BLOCK);
	return 0;
}

static int put_file(struct packing *packing, int directory, const char *file_name, const char *name)
{
	struct stat info;
	int file = open_regular(directory, file_name, O_RDONLY | O_NOFOLLOW, &info);
	if (file < 0)
		return -1;
	uint64_t left = (uint64_t)info.st_size;
	int result = put_header(packing, TAR_FILE, name, NULL, &info, left);
	while (result == 0 && left > 0) {
		size_t size;
		uint8_t *room = room_for(packing, &size);
		ssize_t count = read(file, room, left < size ? (size_t)left : size);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0) {
			result = -1;
		} else if (count == 0) {
			for (; left > 0; left -= left < DATA_MAX ? left : DATA_MAX)
				put(packing, NULL, left < DATA_MAX ? (size_t)left : DATA_MAX);
		} else {
			packing->used += (size_t)count;
			left -= (uint64_t)count;
		}
	}
	int error = errno;
	close(file);
	pad(packing, (uint64_t)info.st_size);
	errno = error;
	return result;
}

/* "./" and the path, with a slash behind a directory. NULL without memory. */
static const char *entry_name(struct packing *packing, const char *path, bool directory)
{
	size_t length = strlen(path);
	char *name = arena_grow(packing->name, length + 4);
	if (name == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	packing->name = name;
	memcpy(name, "./", 2);
	memcpy(name + 2, path, length);
	if (directory && length > 0)
		name[2 + length++] = '/';
	name[2 + length] = 0;
	return name;
}

/* One entry that is there: 0, or -1 with errno. Sockets and devices have no place in an archive of files. */
static int pack_entry(struct packing *packing, int directory, const char *file_name, const struct stat *info, const char *name)
{
	if (S_ISREG(info->st_mode))
		return put_file(packing, directory, file_name, name);
	if (S_ISDIR(info->st_mode))
		return put_header(packing, TAR_DIRECTORY, name, NULL, info, 0);
	if (S_ISFIFO(info->st_mode))
		return put_header(packing, TAR_FIFO, name, NULL, info, 0);
	if (!S_ISLNK(info->st_mode))
		return 0;
	const char *target = link_target(directory, file_name);
	return target == NULL ? -1 : put_header(packing, TAR_LINK, name, target, info, 0);
}

static int enter(struct walk *walk, const char *name)
{
	if (walk_enter(walk, name) < 0)
		return -1;
	if (walk_is_procfs(walk_directory(walk)))
		return 0;
	return names_read(walk_directory(walk), &walk_level(walk)->names);
}

static int pack_tree(struct packing *packing, struct walk *walk)
{
	struct stat info;
	const char *name;
	if (fstat(walk_directory(walk), &info) < 0 || (name = entry_name(packing, "", true)) == NULL ||
	    put_header(packing, TAR_DIRECTORY, name, NULL, &info, 0) < 0 ||
	    names_read(walk_directory(walk), &walk_level(walk)->names) < 0)
		return -1;
	while (walk->depth > 0) {
		struct level *level = walk_level(walk);
		if (level->index == level->names.count) {
			if (walk_leave(walk) < 0)
				return -1;
			continue;
		}
		const char *file_name = names_at(&level->names, level->index++), *path = walk_path(walk, file_name);
		if (path == NULL) {
			errno = ENOMEM;
			return -1;
		}
		int directory = walk_directory(walk), result = fstatat(directory, file_name, &info, AT_SYMLINK_NOFOLLOW);
		if (result == 0) {
			name = entry_name(packing, path, S_ISDIR(info.st_mode));
			result = name == NULL ? -1 : pack_entry(packing, directory, file_name, &info, name);
		}
		if (result == 0 && S_ISDIR(info.st_mode))
			result = enter(walk, file_name);
		/* Gone, or something else now: as if we had come a moment later. */
		if (result < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ENXIO && errno != EISDIR)
			return -1;
	}
	return 0;
}

static int pack(struct packing *packing, const char *path)
{
	char file_name[NAME_MAX + 1];
	struct stat info;
	struct walk walk;
	/* "/" has no name in a directory, and is one itself. */
	int parent = path_parent(path, false, file_name);
	if (parent < 0 && errno != EBUSY)
		return -1;
	int result = parent < 0 ? 0 : fstatat(parent, file_name, &info, AT_SYMLINK_NOFOLLOW);
	if (result == 0 && (parent < 0 || S_ISDIR(info.st_mode))) {
		int top = parent < 0 ? open("/", DIRECTORY_ONLY) : openat(parent, file_name, DIRECTORY_ONLY | O_NOFOLLOW);
		result = top < 0 ? -1 : walk_begin(&walk, top);
		if (result == 0) {
			result = pack_tree(packing, &walk);
			int error = errno;
			walk_end(&walk);
			errno = error;
		}
	} else if (result == 0) {
		result = S_ISREG(info.st_mode) || S_ISLNK(info.st_mode) ? pack_entry(packing, parent, file_name, &info, file_name) : (errno = ENXIO, -1);
	}
	int error = errno;
	if (parent >= 0)
		close(parent);
	errno = error;
	return result;
}

void serve_pack(const struct request *request)
{
	struct packing packing = { .request = request };
	const char *path = path_at(request, 0);
	if (path == NULL)
		return;
	int result = pack(&packing, path), error = errno;
	if (result == 0)
		put(&packing, NULL, (size_t)2 * TAR_BLOCK);
	send_room(&packing);
	arena_give(packing.name);
	errno = error;
	if (result < 0)
		fault_errno(request, path);
	else
		answer_done(request->number);
}
