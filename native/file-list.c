/*
 * LIST: a tree in order, from after any entry.
 *
 * Always true: entries come in the byte order of their names, each directory before what is in it, so that the last
 * entry of a page says where the next page begins, even when that entry is gone meanwhile.
 */
#include "bytes.h"
#include "paths.h"
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define LISTED_PATH_MAX 60000u

struct listing {
	struct walk walk;
	uint32_t depth, left; /* depth 0, left 0: without bound */
	bool bounded;
};

/* Enters a directory and reads its names. false: it is passed over. */
static bool enter(struct listing *listing, const char *name)
{
	struct walk *walk = &listing->walk;
	if (listing->depth != 0 && walk->depth >= listing->depth)
		return false;
	if (walk_enter(walk, name) < 0)
		return false;
	bool endless = walk_is_procfs(walk_directory(walk)) && !walk_is_procfs(walk->levels[0].fd);
	if (endless || names_read(walk_directory(walk), &walk_level(walk)->names) < 0) {
		/* It is shown, with nothing in it. */
		walk_leave(walk);
		return false;
	}
	return true;
}

/* Puts every level where the page begins. */
static void skip_to(struct listing *listing, const char *after)
{
	char name[NAME_MAX + 1];
	while (*after != 0) {
		struct level *level = walk_level(&listing->walk);
		size_t length = strcspn(after, "/");
		if (length == 0 || length > NAME_MAX) {
			after += length == 0 ? 1 : length;
			continue;
		}
		memcpy(name, after, length);
		name[length] = 0;
		after += length;
		level->index = names_find(&level->names, name, length + 1);
		if (level->index == level->names.count || strcmp(names_at(&level->names, level->index), name) != 0)
			return;
		level->index++;
		if (!enter(listing, name))
			return;
	}
}

/* One entry: 1 when it was sent, 0 when it is gone, -1 with errno. */
static int show(struct listing *listing, const struct request *request, const char *name, struct stat *info)
{
	int directory = walk_directory(&listing->walk);
	const char *path = walk_path(&listing->walk, name);
	if (path == NULL) {
		errno = ENOMEM;
		return -1;
	}
	if (strlen(path) > LISTED_PATH_MAX || fstatat(directory, name, info, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	answer_stat(request->number, info, path, S_ISLNK(info->st_mode) ? link_target(directory, name) : NULL);
	return 1;
}

static int list(struct listing *listing, const struct request *request)
{
	struct walk *walk = &listing->walk;
	while (walk->depth > 0) {
		struct level *level = walk_level(walk);
		struct stat info;
		if (level->index == level->names.count) {
			if (walk_leave(walk) < 0)
				return -1;
			continue;
		}
		if (listing->bounded && listing->left == 0)
			return 0;
		const char *name = names_at(&level->names, level->index++);
		int shown = show(listing, request, name, &info);
		if (shown < 0)
			return -1;
		if (shown > 0) {
			listing->left--;
			if (S_ISDIR(info.st_mode))
				enter(listing, name);
		}
	}
	return 0;
}

void serve_list(const struct request *request)
{
	const char *path, *after;
	struct listing listing = { 0 };
	if (request->length < 8)
		worker_end();
	if (!paths_at(request, 8, &path, &after, true))
		return;
	listing.depth = get_u32(request->body);
	listing.left = get_u32(request->body + 4);
	listing.bounded = listing.left != 0;
	int directory = open(path, DIRECTORY_ONLY);
	if (directory < 0 || walk_begin(&listing.walk, directory) < 0) {
		fault_errno(request, path);
		return;
	}
	int result = names_read(directory, &walk_level(&listing.walk)->names);
	if (result == 0) {
		skip_to(&listing, after);
		result = list(&listing, request);
	}
	if (result < 0)
		fault_errno(request, path);
	else
		answer_done(request->number);
	walk_end(&listing.walk);
}
