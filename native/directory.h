/*
 * The entries of a directory, read through its descriptor without libc's allocator.
 *
 * Always true: "." and ".." are left out. What is removed or added while it is read may be passed over.
 */
#ifndef ATOLL_DIRECTORY_H
#define ATOLL_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

/* As the kernel gives it (struct linux_dirent64). */
struct directory_entry {
	uint64_t inode;
	int64_t offset;
	uint16_t length;
	uint8_t type; /* as d_type */
	char name[];
};

struct directory_reader {
	_Alignas(8) char bytes[32768];
	int directory;
	long at, count;
};

bool is_dots(const char *name);

/* From the first entry on: 0, or -1 with errno. */
int directory_begin(struct directory_reader *reader, int directory);
/* The next entry, valid until the next call: 1, 0 at the end, -1 with errno. */
int directory_next(struct directory_reader *reader, const struct directory_entry **entry);

#endif
