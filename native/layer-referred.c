/*
 * What a subvolume refers to, counted in its own tree: every extent once and whole, and the items of the tree themselves.
 * For file systems whose quotas count by who wrote something and not by who refers to it.
 */
#include "layer.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SEARCH_BYTES (1u << 20)
#define EXTENTS_MAX (16u << 20)
#define KEY_BYTES 25
/* What an item takes in a leaf beyond its own bytes; leaves are about two thirds full. */
#define LEAF_SHARE(bytes) ((bytes) + (bytes) / 2)

struct extent {
	uint64_t at, bytes;
};

struct count {
	struct extent *extents;
	size_t length, capacity;
	uint64_t item_bytes;
	uint64_t until; /* what was written in a later transaction does not count */
};

static int add_extent(struct count *count, uint64_t at, uint64_t bytes)
{
	if (count->length == count->capacity) {
		size_t capacity = count->capacity == 0 ? 4096 : count->capacity * 2;
		struct extent *extents = capacity > EXTENTS_MAX ? NULL : realloc(count->extents, capacity * sizeof(*extents));
		if (extents == NULL) {
			errno = ENOMEM;
			return -1;
		}
		count->extents = extents;
		count->capacity = capacity;
	}
	count->extents[count->length++] = (struct extent){ at, bytes };
	return 0;
}

static int add_item(struct count *count, const struct btrfs_ioctl_search_header *header, const uint8_t *item)
{
	struct btrfs_file_extent_item extent;
	if (header->transid <= count->until)
		count->item_bytes += header->len + KEY_BYTES;
	if (header->type != BTRFS_EXTENT_DATA_KEY || header->len < sizeof(extent))
		return 0;
	memcpy(&extent, item, sizeof(extent));
	/* A hole has no place. */
	if (extent.type == BTRFS_FILE_EXTENT_INLINE || extent.disk_bytenr == 0 || le64toh(extent.generation) > count->until)
		return 0;
	return add_extent(count, le64toh(extent.disk_bytenr), le64toh(extent.disk_num_bytes));
}

/* Past the last item that was found; false: there is no key behind it. */
static bool step_behind(struct btrfs_ioctl_search_key *key, const struct btrfs_ioctl_search_header *last)
{
	key->min_objectid = last->objectid;
	key->min_type = last->type;
	key->min_offset = last->offset + 1;
	if (key->min_offset != 0)
		return true;
	if (++key->min_type <= UINT8_MAX)
		return true;
	key->min_type = 0;
	return ++key->min_objectid != 0;
}

static int count_items(int directory, struct count *count)
{
	struct btrfs_ioctl_search_args_v2 *search = calloc(1, sizeof(*search) + SEARCH_BYTES);
	if (search == NULL)
		return -1;
	search->key = (struct btrfs_ioctl_search_key){
		.max_objectid = UINT64_MAX, .max_type = UINT8_MAX, .max_offset = UINT64_MAX, .max_transid = UINT64_MAX,
	};
	for (;;) {
		struct btrfs_ioctl_search_header header = { 0 };
		size_t at = 0;
		search->key.nr_items = UINT32_MAX;
		search->buf_size = SEARCH_BYTES;
		if (ioctl(directory, BTRFS_IOC_TREE_SEARCH_V2, search) < 0)
			return -1;
		for (uint32_t i = 0; i < search->key.nr_items; i++) {
			const uint8_t *found = (const uint8_t *)search->buf + at;
			memcpy(&header, found, sizeof(header));
			if (add_item(count, &header, found + sizeof(header)) < 0)
				return -1;
			at += sizeof(header) + header.len;
		}
		if (search->key.nr_items == 0 || !step_behind(&search->key, &header))
			break;
	}
	free(search);
	return 0;
}

static int by_place(const void *left, const void *right)
{
	const struct extent *a = left, *b = right;
	return a->at < b->at ? -1 : a->at > b->at;
}

/* The transaction that a subvolume was made in. */
static int made_in(const char *path, uint64_t *transaction)
{
	struct btrfs_ioctl_get_subvol_info_args info;
	int directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (directory < 0 || ioctl(directory, BTRFS_IOC_GET_SUBVOL_INFO, &info) < 0)
		return -1;
	*transaction = info.otransid;
	close(directory);
	return 0;
}

/* Bytes that it refers to; with a second subvolume, only what is older than that one. */
int layer_referred(char *const *arguments, size_t arguments_count, char result[LAYER_RESULT_MAX])
{
	struct count count = { .until = UINT64_MAX };
	if (arguments_count > 1 && made_in(arguments[1], &count.until) < 0)
		return layer_say("cannot tell when %.150s was made", arguments[1]);
	int directory = open(arguments[0], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (directory < 0 || count_items(directory, &count) < 0)
		return layer_say("cannot count what %.150s refers to", arguments[0]);
	uint64_t bytes = LEAF_SHARE(count.item_bytes);
	if (count.length > 0)
		qsort(count.extents, count.length, sizeof(*count.extents), by_place);
	for (size_t i = 0; i < count.length; i++)
		if (i == 0 || count.extents[i].at != count.extents[i - 1].at)
			bytes += count.extents[i].bytes;
	free(count.extents);
	snprintf(result, LAYER_RESULT_MAX, "%llu", (unsigned long long)bytes);
	return 0;
}
