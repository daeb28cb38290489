/*
 * Makes one layer of several, so that what overlayfs shows with the one on top of anything is what it showed with them.
 *
 * A directory of the result is merged from directories of the layers, uppermost first. Which ones follows overlayfs:
 * a whiteout or a file in a layer hides everything below it, an opaque directory is the last of its kind, and a redirect
 * says under which path the layers below that one are to be searched: an absolute one from their tops, another one in the
 * same parent. What lies under the result stays unknown here, so whiteouts are kept, and a directory through which it
 * may shine ("open") tells by a redirect of its own where it does when that is not its own path.
 *
 * Always true: layers are read by openat2 beneath their tops, without symbolic links. A path longer than PATH_MAX fails
 * with ENAMETOOLONG, and then nothing is flattened.
 */
#include "kernel.h"
#include "layer.h"
#include "layer-entry.h"
#include "paths.h"
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define OPAQUE "trusted.overlay.opaque"
#define REDIRECT "trusted.overlay.redirect"
#define RESOLVE_NO_LINKS 0x04u
#define RESOLVE_NO_MOUNTS 0x01u

/* A directory of one layer. The path has no slash at its ends; "" is the top. */
struct place {
	size_t layer;
	char *path;
};

struct merged {
	struct place *places; /* uppermost first, at least one */
	size_t count;
	bool open;   /* what is under the result shows through */
	char *below; /* under this path of it; NULL when it does not */
};

static int *tops;
static size_t top_count;
static struct link_area area;

static char *join(const char *path, const char *name)
{
	char *joined = NULL;
	if (asprintf(&joined, "%s%s%s", path, path[0] == 0 ? "" : "/", name) < 0)
		return NULL;
	return joined;
}

static int open_place(size_t layer, const char *path)
{
	struct open_request request = {
		.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BELOW | RESOLVE_NO_LINKS | RESOLVE_NO_MOUNTS | RESOLVE_NO_MAGIC,
	};
	return kernel_openat2(tops[layer], path[0] == 0 ? "." : path, &request);
}

static bool is_opaque(int directory)
{
	char value[2];
	return fgetxattr(directory, OPAQUE, value, sizeof(value)) == 1 && value[0] == 'y';
}

/* Whether the directory has a redirect, which goes to `redirect`. */
static bool has_redirect(int directory, char redirect[PATH_MAX])
{
	ssize_t length = fgetxattr(directory, REDIRECT, redirect, PATH_MAX - 1);
	if (length <= 0)
		return false;
	redirect[length] = 0;
	return true;
}

/*
 * A search for directories that belong together, going down the layers: the path to look for in the next layer, and
 * whether it counts from the layers' tops or in the parent's own places.
 */
struct search {
	bool absolute;
	char name[PATH_MAX]; /* a whole path without its first slash, or one name */
	bool ended;          /* nothing further down belongs to it */
};

/* The rest of a path goes on behind a redirect that was met on the way. */
static int follow(struct search *search, const char *redirect, const char *parent, const char *rest)
{
	char path[PATH_MAX];
	int length;
	if (redirect[0] == '/') {
		length = snprintf(path, sizeof(path), "%s%s%s", redirect + 1, rest[0] == 0 ? "" : "/", rest);
		search->absolute = true;
	} else if (search->absolute) {
		length = snprintf(path, sizeof(path), "%s%s%s%s%s", parent, parent[0] == 0 ? "" : "/", redirect, rest[0] == 0 ? "" : "/", rest);
	} else {
		length = snprintf(path, sizeof(path), "%s", redirect);
	}
	if (length >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(search->name, path, (size_t)length + 1);
	return 0;
}

enum found { FOUND_ERROR = -1, FOUND_NOTHING, FOUND_DIRECTORY };

/* One name in one directory of a layer, as overlayfs looks it up; `rest` is the path behind it. */
static enum found look_up(size_t layer, const char *parent, const char *name, const char *rest, struct search *search)
{
	struct stat info;
	char redirect[PATH_MAX];
	int directory = open_place(layer, parent);
	if (directory < 0)
		return errno == ENOENT || errno == ENOTDIR ? FOUND_NOTHING : FOUND_ERROR;
	int looked = fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW);
	int error = errno;
	close(directory);
	if (looked < 0) {
		errno = error;
		return error == ENOENT ? FOUND_NOTHING : FOUND_ERROR;
	}
	if (!S_ISDIR(info.st_mode)) {
		search->ended = true;
		return FOUND_NOTHING;
	}
	char *path = join(parent, name);
	int child = path == NULL ? -1 : open_place(layer, path);
	free(path);
	if (child < 0)
		return FOUND_ERROR;
	int result = 0;
	if (is_opaque(child))
		search->ended = true;
	else if (has_redirect(child, redirect))
		result = follow(search, redirect, parent, rest);
	close(child);
	return result < 0 ? FOUND_ERROR : FOUND_DIRECTORY;
}

/* A path from the top of a layer, name by name: what an upper part of it says counts for the layers below. */
static enum found look_up_path(size_t layer, const char *path, struct search *search)
{
	char parent[PATH_MAX] = "", copied[PATH_MAX];
	strcpy(copied, path);
	for (char *name = copied;;) {
		char *slash = strchr(name, '/');
		if (slash != NULL)
			*slash = 0;
		enum found found = look_up(layer, parent, name, slash == NULL ? "" : slash + 1, search);
		if (found != FOUND_DIRECTORY || slash == NULL)
			return found;
		size_t length = strlen(parent);
		snprintf(parent + length, sizeof(parent) - length, "%s%s", length == 0 ? "" : "/", name);
		name = slash + 1;
	}
}

static int add_place(struct merged *merged, size_t layer, char *path)
{
	struct place *grown = path == NULL ? NULL : realloc(merged->places, (merged->count + 1) * sizeof(*grown));
	if (grown == NULL) {
		free(path);
		errno = ENOMEM;
		return -1;
	}
	merged->places = grown;
	merged->places[merged->count++] = (struct place){ layer, path };
	return 0;
}

static void free_merged(struct merged *merged)
{
	for (size_t i = 0; i < merged->count; i++)
		free(merged->places[i].path);
	free(merged->places);
	free(merged->below);
}

/* The directory `name` of `parent`, which its place number `first` is the uppermost to have. */
static int merge_child(const struct merged *parent, size_t first, const char *name, struct merged *child)
{
	static struct search search;
	size_t layer = parent->places[first].layer, place = first;
	search.absolute = search.ended = false;
	snprintf(search.name, sizeof(search.name), "%s", name);
	*child = (struct merged){ 0 };
	while (!search.ended) {
		char wanted[PATH_MAX];
		bool absolute = search.absolute;
		const char *from = absolute ? "" : parent->places[place].path;
		strcpy(wanted, search.name);
		enum found found = absolute ? look_up_path(layer, wanted, &search) : look_up(layer, from, wanted, "", &search);
		if (found == FOUND_ERROR || (found == FOUND_DIRECTORY && add_place(child, layer, join(from, wanted)) < 0))
			return -1;
		if (search.absolute) {
			if (++layer == top_count)
				break;
		} else {
			if (++place == parent->count)
				break;
			layer = parent->places[place].layer;
		}
	}
	child->open = !search.ended && (search.absolute || parent->open);
	if (child->open)
		child->below = search.absolute ? strdup(search.name) : join(parent->below, search.name);
	if (child->open && child->below == NULL) {
		errno = ENOMEM;
		return -1;
	}
	return 0;
}

/* How overlayfs gets from the result to what is under it. */
static int mark(int directory, const struct merged *parent, const struct merged *merged, const char *name)
{
	char redirect[PATH_MAX];
	if (fremovexattr(directory, OPAQUE) < 0 && errno != ENODATA)
		return -1;
	if (fremovexattr(directory, REDIRECT) < 0 && errno != ENODATA)
		return -1;
	if (!merged->open)
		return fsetxattr(directory, OPAQUE, "y", 1, 0);
	char *natural = parent->open ? join(parent->below, name) : NULL;
	bool moved = natural == NULL || strcmp(natural, merged->below) != 0;
	free(natural);
	int length = snprintf(redirect, sizeof(redirect), "/%s", merged->below);
	return moved ? fsetxattr(directory, REDIRECT, redirect, (size_t)length, 0) : 0;
}

static int flatten_directory(const struct merged *merged, int to);

static int flatten_child(const struct merged *parent, size_t first, const char *name, int to)
{
	struct merged child;
	int result = -1, directory = -1, from = -1;
	if (merge_child(parent, first, name, &child) == 0 && mkdirat(to, name, 0700) == 0)
		directory = openat(to, name, DIRECTORY_ONLY | O_NOFOLLOW);
	if (directory >= 0 && flatten_directory(&child, directory) == 0)
		from = open_place(child.places[0].layer, child.places[0].path);
	if (from >= 0 && entry_dress(from, directory, false) == 0 && mark(directory, parent, &child, name) == 0) {
		struct stat info;
		result = fstat(from, &info);
		struct timespec times[2] = { info.st_atim, info.st_mtim };
		if (result == 0)
			result = futimens(directory, times);
	}
	int error = errno;
	if (from >= 0)
		close(from);
	if (directory >= 0)
		close(directory);
	free_merged(&child);
	errno = error;
	return result;
}

/* The open directories and names of one merged directory; names are sorted, so the places are merged like lists. */
struct listing {
	int directory;
	struct names names;
	size_t index;
};

/* The first name that is left, and the uppermost place that has it; every place moves past it. NULL at the end. */
static const char *next_name(struct listing *listings, size_t count, size_t *first, size_t *index)
{
	const char *least = NULL;
	for (size_t i = 0; i < count; i++) {
		if (listings[i].index == listings[i].names.count)
			continue;
		const char *name = names_at(&listings[i].names, listings[i].index);
		if (least == NULL || strcmp(name, least) < 0) {
			least = name;
			*first = i;
			*index = listings[i].index;
		}
	}
	for (size_t i = 0; least != NULL && i < count; i++)
		if (listings[i].index < listings[i].names.count && strcmp(names_at(&listings[i].names, listings[i].index), least) == 0)
			listings[i].index++;
	return least;
}

struct later {
	size_t place;
	char *name;
};

/* Copies what is not a directory, and remembers the directories: they are entered when nothing of this one is open. */
static int flatten_files(const struct merged *merged, struct listing *listings, int to, struct later **later, size_t *count)
{
	size_t first = 0, index = 0;
	struct stat info;
	const char *name;
	while ((name = next_name(listings, merged->count, &first, &index)) != NULL) {
		int from = listings[first].directory;
		if (fstatat(from, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
			return layer_say("cannot look at /%.70s/%.70s", merged->places[first].path, name);
		if (S_ISDIR(info.st_mode)) {
			struct later *grown = realloc(*later, (*count + 1) * sizeof(*grown));
			if (grown == NULL)
				return layer_say("there is no memory for the names of a directory");
			*later = grown;
			grown[*count] = (struct later){ first, strdup(name) };
			if (grown[(*count)++].name == NULL)
				return layer_say("there is no memory for the names of a directory");
			continue;
		}
		/* Where nothing shows through, a whiteout would only be a strange file. */
		if (entry_is_whiteout(&info) && !merged->open)
			continue;
		if (entry_copy(from, name, to, &area, (unsigned)merged->places[first].layer) < 0)
			return layer_say("cannot copy /%.70s/%.70s", merged->places[first].path, name);
	}
	return 0;
}

static int flatten_directory(const struct merged *merged, int to)
{
	struct listing *listings = calloc(merged->count, sizeof(*listings));
	struct later *later = NULL;
	size_t count = 0, opened = 0;
	int result = listings == NULL ? -1 : 0;
	for (; result == 0 && opened < merged->count; opened++) {
		struct listing *listing = &listings[opened];
		listing->directory = open_place(merged->places[opened].layer, merged->places[opened].path);
		if (listing->directory < 0 || names_read(listing->directory, &listing->names) < 0)
			result = layer_say("cannot list /%.150s", merged->places[opened].path);
	}
	if (result == 0)
		result = flatten_files(merged, listings, to, &later, &count);
	int error = errno;
	for (size_t i = 0; i < opened; i++) {
		names_free(&listings[i].names);
		if (listings[i].directory >= 0)
			close(listings[i].directory);
	}
	free(listings);
	errno = error;
	for (size_t i = 0; i < count; i++) {
		if (result == 0 && flatten_child(merged, later[i].place, later[i].name, to) < 0)
			result = layer_say("cannot flatten the directory %.150s", later[i].name);
		error = errno;
		free(later[i].name);
		errno = error;
	}
	free(later);
	return result;
}

int layer_flatten(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)result;
	int layers[LAYER_ARGUMENTS_MAX];
	struct merged root = { .open = true, .below = strdup("") };
	tops = layers;
	top_count = count - 1;
	for (size_t i = 0; i < top_count; i++) {
		tops[i] = open(arguments[i + 1], DIRECTORY_ONLY | O_NOFOLLOW);
		if (tops[i] < 0)
			return layer_say("cannot open %.150s", arguments[i + 1]);
		if (add_place(&root, i, strdup("")) < 0)
			return layer_say("there is no memory for %zu layers", top_count);
	}
	if (mkdir(arguments[0], 0700) < 0 || link_area_open(&area, arguments[0]) < 0)
		return layer_say("cannot make %.150s", arguments[0]);
	int to = open(arguments[0], DIRECTORY_ONLY | O_NOFOLLOW);
	if (to < 0)
		return layer_say("cannot open %.150s", arguments[0]);
	if (flatten_directory(&root, to) < 0)
		return -1;
	if (link_area_close(&area) < 0 || entry_dress(tops[0], to, false) < 0)
		return layer_say("cannot finish %.150s", arguments[0]);
	return 0;
}
