/* See tar.h. */
#include "tar.h"

#include <string.h>

#define NAME_SIZE 100u
#define SIZE_LIMIT ((uint64_t)1 << 33) /* eleven octal digits */

/* Where things are in a header. */
enum {
	AT_NAME = 0, AT_MODE = 100, AT_UID = 108, AT_GID = 116, AT_SIZE = 124, AT_MTIME = 136, AT_SUM = 148, AT_TYPE = 156,
	AT_TARGET = 157, AT_MAGIC = 257, AT_PREFIX = 345, PREFIX_SIZE = 155,
};

/* Octal, or with the top bit set GNU's base 256: false when neither. */
static bool parse_number(const uint8_t *field, size_t size, uint64_t *number)
{
	*number = 0;
	if ((field[0] & 0x80) != 0) {
		/* Negative numbers and those beyond 63 bits are nothing we can use. */
		if (field[0] != 0x80)
			return false;
		for (size_t i = 1; i < size; i++) {
			if (*number >> 55 != 0)
				return false;
			*number = *number << 8 | field[i];
		}
		return true;
	}
	size_t i = 0;
	while (i < size && field[i] == ' ')
		i++;
	for (; i < size && field[i] >= '0' && field[i] <= '7'; i++) {
		if (*number >> 60 != 0)
			return false;
		*number = *number << 3 | (uint64_t)(field[i] - '0');
	}
	return i == size || field[i] == ' ' || field[i] == 0;
}

static uint32_t sum_of(const uint8_t block[TAR_BLOCK])
{
	uint32_t sum = 0;
	for (unsigned i = 0; i < TAR_BLOCK; i++)
		sum += i >= AT_SUM && i < AT_SUM + 8 ? ' ' : block[i];
	return sum;
}

static void take_text(char *to, const uint8_t *from, size_t size)
{
	size_t length = strnlen((const char *)from, size);
	memcpy(to, from, length);
	to[length] = 0;
}

int tar_parse(const uint8_t block[TAR_BLOCK], struct tar_header *header)
{
	static const uint8_t zeros[TAR_BLOCK];
	uint64_t sum, mode, mtime = 0;
	if (memcmp(block, zeros, TAR_BLOCK) == 0)
		return 0;
	if (!parse_number(block + AT_SUM, 8, &sum) || sum != sum_of(block) || !parse_number(block + AT_MODE, 8, &mode) ||
	    !parse_number(block + AT_UID, 8, &header->uid) || !parse_number(block + AT_GID, 8, &header->gid) ||
	    !parse_number(block + AT_SIZE, 12, &header->size))
		return -1;
	/* A time before 1970 in base 256 is no reason to refuse the rest. */
	if (!parse_number(block + AT_MTIME, 12, &mtime))
		mtime = 0;
	header->mtime = (int64_t)mtime;
	header->mode = (uint32_t)mode & 07777;
	header->type = block[AT_TYPE] == 0 ? TAR_FILE : (char)block[AT_TYPE];
	take_text(header->target, block + AT_TARGET, NAME_SIZE);
	header->name[0] = 0;
	/* "ustar" and NUL; GNU's older magic has other things where the prefix would be. */
	if (memcmp(block + AT_MAGIC, "ustar", 6) == 0 && block[AT_PREFIX] != 0) {
		take_text(header->name, block + AT_PREFIX, PREFIX_SIZE);
		strcat(header->name, "/");
	}
	take_text(header->name + strlen(header->name), block + AT_NAME, NAME_SIZE);
	return 1;
}

static void format_octal(uint8_t *field, size_t size, uint64_t number)
{
	field[size - 1] = 0;
	for (size_t i = size - 1; i-- > 0; number >>= 3)
		field[i] = (uint8_t)('0' + (number & 7));
}

static void format_text(uint8_t *field, size_t size, const char *text)
{
	memcpy(field, text, strnlen(text, size));
}

bool tar_fits(const char *name, const char *target, uint64_t size)
{
	return strlen(name) <= NAME_SIZE && (target == NULL || strlen(target) <= NAME_SIZE) && size < SIZE_LIMIT;
}

void tar_format(uint8_t block[TAR_BLOCK], char type, const char *name, const char *target, const struct stat *info, uint64_t size)
{
	memset(block, 0, TAR_BLOCK);
	format_text(block + AT_NAME, NAME_SIZE, name);
	format_octal(block + AT_MODE, 8, info->st_mode & 07777);
	format_octal(block + AT_UID, 8, info->st_uid & 07777777);
	format_octal(block + AT_GID, 8, info->st_gid & 07777777);
	format_octal(block + AT_SIZE, 12, size & (SIZE_LIMIT - 1));
	format_octal(block + AT_MTIME, 12, info->st_mtim.tv_sec < 0 ? 0 : (uint64_t)info->st_mtim.tv_sec);
	block[AT_TYPE] = (uint8_t)type;
	if (target != NULL)
		format_text(block + AT_TARGET, NAME_SIZE, target);
	memcpy(block + AT_MAGIC, "ustar\00000", 8);
	format_octal(block + AT_SUM, 7, sum_of(block));
	block[AT_SUM + 7] = ' ';
}

static size_t digits_of(size_t number)
{
	size_t digits = 1;
	for (; number >= 10; number /= 10)
		digits++;
	return digits;
}

size_t tar_pax_record(uint8_t *room, const char *key, const char *value, size_t length)
{
	size_t key_length = strlen(key), rest = 3 + key_length + length, total = rest + digits_of(rest);
	/* The length counts its own digits. */
	if (rest + digits_of(total) != total)
		total = rest + digits_of(total);
	size_t digits = digits_of(total), left = total;
	for (size_t i = digits; i-- > 0; left /= 10)
		room[i] = (uint8_t)('0' + left % 10);
	room[digits] = ' ';
	memcpy(room + digits + 1, key, key_length);
	room[digits + 1 + key_length] = '=';
	memcpy(room + digits + 2 + key_length, value, length);
	room[total - 1] = '\n';
	return total;
}

int tar_pax_next(const uint8_t **at, const uint8_t *end, const char **key, size_t *key_length, const char **value, size_t *length)
{
	size_t size = 0, left = (size_t)(end - *at), i = 0;
	if (left == 0)
		return 0;
	for (; i < left && i < 9 && (*at)[i] >= '0' && (*at)[i] <= '9'; i++)
		size = size * 10 + (size_t)((*at)[i] - '0');
	if (i == 0 || i == left || (*at)[i] != ' ' || size > left || size < i + 4 || (*at)[size - 1] != '\n')
		return -1;
	const uint8_t *begin = *at + i + 1, *equals = memchr(begin, '=', size - i - 2);
	if (equals == NULL)
		return -1;
	*key = (const char *)begin;
	*key_length = (size_t)(equals - begin);
	*value = (const char *)equals + 1;
	*length = (size_t)(*at + size - 1 - (equals + 1));
	*at += size;
	return 1;
}

bool tar_pax_number(const char *text, size_t length, int64_t *number)
{
	bool negative = length > 0 && text[0] == '-';
	size_t i = negative;
	*number = 0;
	for (; i < length && text[i] >= '0' && text[i] <= '9'; i++) {
		if (*number > INT64_MAX / 10 - 1)
			return false;
		*number = *number * 10 + (text[i] - '0');
	}
	if (negative)
		*number = -*number;
	return i > (size_t)negative && (i == length || text[i] == '.');
}
