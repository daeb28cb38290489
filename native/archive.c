/* See archive.h. */
#include "archive.h"

#include "arena.h"
#include "worker.h"

#include <errno.h>
#include <string.h>

#define EXTENSION_MAX (1u << 20) /* bytes of pax records or of a long name */

static struct {
	uint32_t request;
	const uint8_t *bytes; /* DATA that was received and not used */
	size_t left;
	int ended; /* 0: the client's DONE has come, -1: it gave up, 1: neither */
	struct tar_header header;
	char *name, *target; /* from pax records or GNU blocks; NULL: the header's own */
	bool has_size, has_mtime;
	int64_t size, mtime;
	uint64_t content, padding; /* of the entry, not read yet */
} archive;

void archive_begin(uint32_t request)
{
	memset(&archive, 0, sizeof(archive));
	archive.request = request;
	archive.ended = 1;
}

static void forget_extensions(void)
{
	arena_give(archive.name);
	arena_give(archive.target);
	archive.name = archive.target = NULL;
	archive.has_size = archive.has_mtime = false;
}

void archive_end(void)
{
	if (archive.ended > 0)
		data_skip(archive.request);
	forget_extensions();
}

const char *archive_name(void)
{
	if (archive.name != NULL)
		return archive.name;
	return archive.header.name[0] != 0 ? archive.header.name : NULL;
}

/* Whether there is another byte. */
static bool has_more(void)
{
	if (archive.left == 0 && archive.ended > 0)
		archive.ended = data_next(archive.request, &archive.bytes, &archive.left);
	return archive.left > 0 && archive.ended > 0;
}

/* Up to `most` bytes: false at the end of the data, which is too early then. */
static bool pull(const uint8_t **bytes, size_t *length, uint64_t most)
{
	if (!has_more()) {
		errno = archive.ended < 0 ? ECANCELED : EINVAL;
		return false;
	}
	*bytes = archive.bytes;
	*length = archive.left < most ? archive.left : (size_t)most;
	archive.bytes += *length;
	archive.left -= *length;
	return true;
}

/* All of `size` bytes into `room`, or dropped without one. */
static bool pull_all(uint8_t *room, uint64_t size)
{
	while (size > 0) {
		const uint8_t *bytes;
		size_t length;
		if (!pull(&bytes, &length, size))
			return false;
		if (room != NULL) {
			memcpy(room, bytes, length);
			room += length;
		}
		size -= length;
	}
	return true;
}

static uint64_t padding(uint64_t size)
{
	return -size & (TAR_BLOCK - 1);
}

int archive_bytes(const uint8_t **bytes, size_t *length)
{
	if (archive.content == 0)
		return 0;
	if (!pull(bytes, length, archive.content))
		return -1;
	archive.content -= *length;
	return 1;
}

bool archive_clean(char *name)
{
	char *to = name;
	if (name[0] == '/')
		return false;
	for (const char *from = name; *from != 0;) {
		size_t length = strcspn(from, "/");
		if (length == 2 && from[0] == '.' && from[1] == '.')
			return false;
		if (length > 0 && !(length == 1 && from[0] == '.')) {
			if (to != name)
				*to++ = '/';
			memmove(to, from, length);
			to += length;
		}
		from += length;
		from += strspn(from, "/");
	}
	*to = 0;
	return true;
}

static char *pull_text(uint64_t size)
{
	char *text = size > EXTENSION_MAX ? NULL : arena_take((size_t)size + 1);
	if (text == NULL) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	if (!pull_all((uint8_t *)text, size) || !pull_all(NULL, padding(size))) {
		arena_give(text);
		return NULL;
	}
	text[size] = 0;
	return text;
}

static bool is_key(const char *key, size_t length, const char *wanted)
{
	return strlen(wanted) == length && memcmp(key, wanted, length) == 0;
}

/* false: a value that cannot be used, or a sparse file, which unpacked as if it were not would be another file. */
static bool take_record(const char *key, size_t key_length, const char *value, size_t length)
{
	int64_t number;
	if (is_key(key, key_length, "path") || is_key(key, key_length, "linkpath")) {
		char **slot = key[0] == 'p' ? &archive.name : &archive.target;
		arena_give(*slot);
		*slot = arena_copy(value, length);
		return *slot != NULL;
	}
	if (is_key(key, key_length, "size")) {
		archive.has_size = tar_pax_number(value, length, &archive.size) && archive.size >= 0;
		return archive.has_size;
	}
	if (is_key(key, key_length, "mtime") && tar_pax_number(value, length, &number)) {
		archive.mtime = number;
		archive.has_mtime = true;
	}
	return key_length < 10 || memcmp(key, "GNU.sparse", 10) != 0;
}

/* What the next header does not say itself: a GNU long name, or pax records. */
static bool take_extension(void)
{
	char type = archive.header.type;
	char *text = pull_text(archive.header.size);
	if (text == NULL)
		return false;
	if (type == TAR_LONG_NAME || type == TAR_LONG_LINK) {
		char **slot = type == TAR_LONG_NAME ? &archive.name : &archive.target;
		arena_give(*slot);
		*slot = text;
		return true;
	}
	const uint8_t *at = (const uint8_t *)text, *end = at + archive.header.size;
	const char *key, *value;
	size_t key_length, length;
	bool usable = true;
	int more = 0;
	/* Global records have times and comments of no use to single entries. */
	while (usable && type == TAR_PAX && (more = tar_pax_next(&at, end, &key, &key_length, &value, &length)) > 0)
		usable = take_record(key, key_length, value, length);
	arena_give(text);
	errno = EINVAL;
	return usable && more >= 0;
}

static bool is_extension(char type)
{
	return type == TAR_PAX || type == TAR_PAX_GLOBAL || type == TAR_LONG_NAME || type == TAR_LONG_LINK;
}

/* The next header that is an entry: 1, 0 at the end, -1 with errno. */
static int next_header(void)
{
	uint8_t block[TAR_BLOCK];
	for (;;) {
		archive.header.name[0] = 0;
		/* An archive may end without its two blocks of zeros. */
		if (!has_more() && archive.ended == 0)
			return 0;
		if (!pull_all(block, TAR_BLOCK))
			return -1;
		int result = tar_parse(block, &archive.header);
		errno = EINVAL;
		if (result <= 0 || !is_extension(archive.header.type))
			return result;
		if (!take_extension())
			return -1;
	}
}

int archive_next(struct archive_entry *entry)
{
	if (!pull_all(NULL, archive.content) || !pull_all(NULL, archive.padding))
		return -1;
	archive.content = archive.padding = 0;
	forget_extensions();
	int result = next_header();
	if (result <= 0)
		return result;
	struct tar_header *header = &archive.header;
	*entry = (struct archive_entry){
		.type = header->type, .mode = header->mode, .uid = header->uid, .gid = header->gid,
		.mtime = archive.has_mtime ? archive.mtime : header->mtime,
		.name = archive.name != NULL ? archive.name : header->name,
		.target = archive.target != NULL ? archive.target : header->target,
	};
	archive.content = archive.has_size ? (uint64_t)archive.size : header->size;
	archive.padding = padding(archive.content);
	/* As tar did before it had a type for directories. */
	size_t length = strlen(entry->name);
	if (entry->type == TAR_FILE && length > 0 && entry->name[length - 1] == '/')
		entry->type = TAR_DIRECTORY;
	if (archive_clean(entry->name))
		return 1;
	errno = EINVAL;
	return -1;
}
