/*
 * A tar stream as it comes in DATA frames, entry by entry: ustar, GNU long names and numbers, pax.
 *
 * Always true: what is read is hostile; names of an entry are clean (no leading slash, no "..", no empty part), and
 * never more than one entry's names are in memory.
 */
#ifndef ATOLL_ARCHIVE_H
#define ATOLL_ARCHIVE_H

#include "tar.h"

struct archive_entry {
	char type;
	uint32_t mode;
	uint64_t uid, gid;
	int64_t mtime;
	char *name;   /* "" is the directory itself */
	char *target; /* of a link, as it stands there */
};

void archive_begin(uint32_t request);
/* 1 and an entry, whose strings live until the next call; 0 at the end of the archive; -1 with errno. */
int archive_next(struct archive_entry *entry);
/* The bytes of the entry: 1, 0 at their end, -1 with errno. */
int archive_bytes(const uint8_t **bytes, size_t *length);
/* What the archive calls the entry it is at, or NULL. */
const char *archive_name(void);
/* Drops the rest of the data and forgets everything. */
void archive_end(void);

/* Makes a name of an archive one of ours, in place: false when it leads up or is absolute. */
bool archive_clean(char *name);

#endif
