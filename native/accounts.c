/* See accounts.h. */
#include "accounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (1u << 20)
#define LINE_MAX_BYTES 8192u
#define COLUMNS 7

struct lines {
	int file;
	size_t begin, end, total;
	bool skipping; /* inside a line that is too long */
	char bytes[LINE_MAX_BYTES];
};

static bool lines_open(struct lines *lines, const char *path)
{
	struct stat info;
	lines->file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	lines->begin = lines->end = lines->total = 0;
	lines->skipping = false;
	if (lines->file < 0)
		return false;
	if (fstat(lines->file, &info) == 0 && S_ISREG(info.st_mode))
		return true;
	close(lines->file);
	return false;
}

static bool refill(struct lines *lines)
{
	if (lines->begin > 0) {
		memmove(lines->bytes, lines->bytes + lines->begin, lines->end - lines->begin);
		lines->end -= lines->begin;
		lines->begin = 0;
	}
	/* One byte stays free for the terminator of a last line without a newline. */
	if (lines->end == LINE_MAX_BYTES - 1) {
		lines->skipping = true;
		lines->end = 0;
	}
	if (lines->total >= FILE_MAX)
		return false;
	ssize_t count = read(lines->file, lines->bytes + lines->end, LINE_MAX_BYTES - 1 - lines->end);
	if (count <= 0)
		return false;
	lines->end += (size_t)count;
	lines->total += (size_t)count;
	return true;
}

/* The next line without its newline, valid until the next call, or NULL. */
static char *lines_next(struct lines *lines)
{
	for (;;) {
		char *start = lines->bytes + lines->begin;
		char *stop = memchr(start, '\n', lines->end - lines->begin);
		if (stop == NULL) {
			if (refill(lines))
				continue;
			if (lines->end == lines->begin || lines->skipping)
				return NULL;
			start = lines->bytes + lines->begin;
			stop = lines->bytes + lines->end;
			lines->begin = lines->end;
			*stop = 0;
			return start;
		}
		*stop = 0;
		lines->begin = (size_t)(stop + 1 - lines->bytes);
		if (lines->skipping) {
			lines->skipping = false;
			continue;
		}
		return start;
	}
}

static size_t split(char *line, char **columns)
{
	size_t count = 0;
	while (count < COLUMNS) {
		columns[count++] = line;
		line = strchr(line, ':');
		if (line == NULL)
			break;
		*line++ = 0;
	}
	return count;
}

/* A decimal id up to 65,535 that ends at `end`: its value, -1 when it is no number, -2 when it is too large. */
static long parse_id(const char *text, const char *end)
{
	long value = 0;
	if (text == end || end - text > 10)
		return -1;
	for (; text < end; text++) {
		if (*text < '0' || *text > '9')
			return -1;
		value = value * 10 + (*text - '0');
	}
	return value > 65535 ? -2 : value;
}

static long parse_column(const char *text)
{
	return parse_id(text, text + strlen(text));
}

static bool list_contains(const char *list, const char *name)
{
	size_t length = strlen(name);
	while (*list != 0) {
		size_t item = strcspn(list, ",");
		if (item == length && memcmp(list, name, length) == 0)
			return true;
		list += item;
		if (*list == ',')
			list++;
	}
	return false;
}

static void add_groups_of(const char *name, struct account *account)
{
	struct lines lines;
	char *line, *columns[COLUMNS];
	if (!lines_open(&lines, "/etc/group"))
		return;
	while (account->group_count < GROUPS_MAX && (line = lines_next(&lines)) != NULL) {
		if (split(line, columns) < 4 || !list_contains(columns[3], name))
			continue;
		long gid = parse_column(columns[2]);
		if (gid >= 0 && (gid_t)gid != account->gid)
			account->groups[account->group_count++] = (gid_t)gid;
	}
	close(lines.file);
}

/* The passwd line of a name, or of a number where `number` is not negative. */
static bool find_line(const char *name, long number, struct account *account)
{
	struct lines lines;
	char *line, *columns[COLUMNS], found[256];
	bool matched = false;
	if (!lines_open(&lines, "/etc/passwd"))
		return false;
	while (!matched && (line = lines_next(&lines)) != NULL) {
		if (split(line, columns) < 4 || strlen(columns[0]) >= sizeof(found) || columns[0][0] == 0)
			continue;
		long uid = parse_column(columns[2]), gid = parse_column(columns[3]);
		if (uid < 0 || gid < 0 || (number >= 0 ? uid != number : strcmp(columns[0], name) != 0))
			continue;
		account->uid = (uid_t)uid;
		account->gid = (gid_t)gid;
		strcpy(found, columns[0]);
		matched = true;
	}
	close(lines.file);
	if (matched)
		add_groups_of(found, account);
	return matched;
}

int account_find(const char *user, struct account *account)
{
	const char *colon = strchr(user, ':');
	const char *end = colon != NULL ? colon : user + strlen(user);
	long uid = parse_id(user, end);
	account->group_count = 0;
	if (*user == 0) {
		/* Nobody was asked for: root, whom no file need be read for. */
		account->uid = 0;
		account->gid = 0;
		return 0;
	}
	if (uid == -2)
		return ERANGE;
	if (colon != NULL) {
		long gid = parse_column(colon + 1);
		if (uid < 0 || gid < 0)
			return gid == -2 ? ERANGE : ENOENT;
		account->uid = (uid_t)uid;
		account->gid = (gid_t)gid;
		return 0;
	}
	if (uid >= 0) {
		if (!find_line(NULL, uid, account)) {
			/* A number nobody has a name for still runs, in the group of the same number. */
			account->uid = (uid_t)uid;
			account->gid = (gid_t)uid;
		}
		return 0;
	}
	return find_line(user, -1, account) ? 0 : ENOENT;
}
