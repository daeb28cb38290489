/*
 * The blocks of a tar stream: ustar headers with pax records for what does not fit, as GNU tar and libarchive read them.
 *
 * Always true: what is parsed is hostile; every number is checked against its field and every name against its block.
 */
#ifndef ATOLL_TAR_H
#define ATOLL_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define TAR_BLOCK 512u

enum tar_type {
	TAR_FILE = '0', TAR_HARD_LINK = '1', TAR_LINK = '2', TAR_CHARACTER = '3', TAR_DEVICE = '4', TAR_DIRECTORY = '5',
	TAR_FIFO = '6', TAR_CONTIGUOUS = '7', TAR_PAX = 'x', TAR_PAX_GLOBAL = 'g', TAR_LONG_NAME = 'L', TAR_LONG_LINK = 'K',
};

/* One header as it stands in its block; names are not ended by a NUL there and are copied. */
struct tar_header {
	char type;
	uint32_t mode;
	uint64_t uid, gid, size;
	int64_t mtime;
	char name[257], target[101];
};

/* 1, 0 for a block of zeros, -1 when it is no header. */
int tar_parse(const uint8_t block[TAR_BLOCK], struct tar_header *header);
/* Writes a header; names and numbers that do not fit are cut, which pax records must make up for. */
void tar_format(uint8_t block[TAR_BLOCK], char type, const char *name, const char *target, const struct stat *info, uint64_t size);
/* Whether the header alone says it all. */
bool tar_fits(const char *name, const char *target, uint64_t size);
/* One pax record `length key=value\n` into `room` (which has key and value plus 32 bytes): its length. */
size_t tar_pax_record(uint8_t *room, const char *key, const char *value, size_t length);
/* The next record of `*at` up to `end`: 1, 0 at the end, -1 when malformed. */
int tar_pax_next(const uint8_t **at, const uint8_t *end, const char **key, size_t *key_length, const char **value, size_t *length);
/* A decimal number, with a fraction that is left out: false when it is none. */
bool tar_pax_number(const char *text, size_t length, int64_t *number);

#endif
