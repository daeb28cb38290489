/* See journal.h; the format is in PROTOCOL.md. */
#include "journal.h"

#include "control.h"
#include "init.h"
#include "journal-spare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENT_MAX (1u << 20)
#define SEGMENT_MIN (8u << 10)
#define RETRY_MS 100
#define HOLD_MS 5000
#define SPARE_MS 50
#define FOLLOWERS_MAX 256
/* The number of a follower that wants to be told and holds nothing. */
#define WATCHER UINT32_MAX

/* A FOLLOW that waits, or one that was answered and holds what it had not passed. */
struct follower {
	struct follower *next;
	struct connection *connection; /* NULL: gone, only the hold is left */
	uint64_t offset, until;        /* until: the end of the hold of one that was answered */
	uint32_t request, number;
	bool waiting;
};

struct journal *journal_open(const char *name, size_t length, uint64_t limit)
{
	struct stat info;
	struct journal *journal = calloc(1, sizeof(*journal));
	if (journal == NULL)
		return NULL;
	memcpy(journal->name, name, length);
	journal->file = -1;
	journal->limit = limit;
	journal->segment = limit / 8 < SEGMENT_MAX ? (uint32_t)(limit / 8) : SEGMENT_MAX;
	if (journal->segment < SEGMENT_MIN)
		journal->segment = SEGMENT_MIN;
	if (fstatat(sandbox.journals, journal->name, &info, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return journal;
	free(journal);
	errno = EEXIST;
	return NULL;
}

static void forget_pending(struct journal *journal)
{
	if (journal->pending != journal->small)
		free(journal->pending);
	journal->pending = NULL;
}

void journal_close(struct journal *journal)
{
	if (journal->file >= 0)
		close(journal->file);
	while (journal->followers != NULL) {
		struct follower *follower = journal->followers;
		journal->followers = follower->next;
		if (follower->waiting)
			control_refuse(follower->connection, follower->request, 4, 0, "no such run");
		free(follower);
	}
	forget_pending(journal);
	free(journal->starts);
	free(journal);
}

static void name_segment(const struct journal *journal, uint64_t start, char *path, size_t size)
{
	snprintf(path, size, "%s/%016llx", journal->name, (unsigned long long)start);
}

void journal_withdraw(struct journal *journal)
{
	char path[JOURNAL_NAME_MAX + 32];
	name_segment(journal, 0, path, sizeof(path));
	unlinkat(sandbox.journals, path, 0);
	unlinkat(sandbox.journals, journal->name, AT_REMOVEDIR);
	journal_close(journal);
}

uint64_t journal_first(const struct journal *journal)
{
	return journal->count > 0 ? journal->starts[journal->oldest] : journal->end;
}

size_t journal_record_max(const struct journal *journal)
{
	size_t room = journal->segment - JOURNAL_HEADER;
	return room < JOURNAL_CHUNK ? room : JOURNAL_CHUNK;
}

static uint64_t newest_start(const struct journal *journal)
{
	return journal->starts[journal->oldest + journal->count - 1];
}

static bool reserve_start(struct journal *journal)
{
	if (journal->oldest + journal->count < journal->capacity)
		return true;
	if (journal->oldest >= journal->count && journal->oldest > 0) {
		memmove(journal->starts, journal->starts + journal->oldest, journal->count * sizeof(uint64_t));
		journal->oldest = 0;
		return true;
	}
	size_t capacity = journal->capacity == 0 ? 16 : journal->capacity * 2;
	uint64_t *grown = realloc(journal->starts, capacity * sizeof(uint64_t));
	if (grown == NULL)
		return false;
	journal->starts = grown;
	journal->capacity = capacity;
	return true;
}

static bool begin_segment(struct journal *journal)
{
	char path[JOURNAL_NAME_MAX + 32];
	if (!reserve_start(journal))
		return false;
	name_segment(journal, journal->end, path, sizeof(path));
	int file = journal->made ? openat(sandbox.journals, path, JOURNAL_SEGMENT_FLAGS, 0600) : spare_take(journal->name);
	/* Not made yet, or taken away by the node. */
	if (file < 0 && (!journal->made || errno == ENOENT) && (mkdirat(sandbox.journals, journal->name, 0700) == 0 || errno == EEXIST))
		file = openat(sandbox.journals, path, JOURNAL_SEGMENT_FLAGS, 0600);
	if (file < 0)
		return false;
	journal->made = true;
	if (journal->file >= 0)
		close(journal->file);
	journal->file = file;
	journal->starts[journal->oldest + journal->count++] = journal->end;
	return true;
}

void journal_make(struct journal *journal)
{
	begin_segment(journal);
	/* The next one, when nobody waits for this one any more. */
	spare_want(boot_ms() + SPARE_MS);
}

/* Writes a whole record, or nothing: false with errno. */
static bool write_record(struct journal *journal, const uint8_t *record, size_t size)
{
	/* What is left of an earlier attempt goes first, or readers would find it in the middle. */
	if (journal->torn && ftruncate(journal->file, (off_t)(journal->end - newest_start(journal))) < 0)
		return false;
	journal->torn = false;
	if ((journal->file < 0 || journal->end - newest_start(journal) + size > journal->segment) && !begin_segment(journal))
		return false;
	ssize_t written = write(journal->file, record, size);
	if (written == (ssize_t)size) {
		journal->end += size;
		return true;
	}
	int error = written < 0 ? errno : ENOSPC;
	journal->torn = written > 0 && ftruncate(journal->file, (off_t)(journal->end - newest_start(journal))) < 0;
	errno = error;
	return false;
}

static void put_header(uint8_t *room, enum journal_kind kind, size_t length, uint64_t now)
{
	put_u32(room, (uint32_t)length);
	room[4] = (uint8_t)kind;
	put_u64(room + 5, now);
}

static void keep_pending(struct journal *journal, const uint8_t *record, size_t size, uint64_t now)
{
	journal->pending_size = size;
	journal->pending = size <= sizeof(journal->small) ? journal->small : malloc(size);
	if (journal->pending == NULL) {
		/* Neither disk nor memory: the one case in which output is lost, and it is said. */
		put_header(journal->small, JOURNAL_DROPPED, 8, now);
		put_u64(journal->small + JOURNAL_HEADER, size - JOURNAL_HEADER);
		journal->pending = journal->small;
		journal->pending_size = JOURNAL_HEADER + 8;
		return;
	}
	memcpy(journal->pending, record, size);
}

static void refused_by_disk(struct journal *journal, uint64_t now)
{
	journal->error = errno;
	journal->retry_at = now + RETRY_MS;
	loop_alarm(journal->retry_at);
}

void journal_append(struct journal *journal, enum journal_kind kind, uint8_t *room, size_t length)
{
	uint64_t now = boot_ms();
	put_header(room, kind, length, now);
	if (write_record(journal, room, JOURNAL_HEADER + length))
		return;
	refused_by_disk(journal, now);
	keep_pending(journal, room, JOURNAL_HEADER + length, now);
}

bool journal_settle(struct journal *journal, uint64_t now)
{
	if (journal->pending == NULL)
		return true;
	if (now < journal->retry_at) {
		loop_alarm(journal->retry_at);
		return false;
	}
	if (!write_record(journal, journal->pending, journal->pending_size)) {
		refused_by_disk(journal, now);
		return false;
	}
	forget_pending(journal);
	return true;
}

static void drop_follower(struct journal *journal, struct follower **link)
{
	struct follower *follower = *link;
	*link = follower->next;
	journal->follower_count--;
	free(follower);
}

/* Whether somebody has not passed `offset`. Holds that are over are forgotten on the way. */
static bool held(struct journal *journal, uint64_t offset, uint64_t now)
{
	bool found = false;
	for (struct follower **link = &journal->followers; *link != NULL;) {
		struct follower *follower = *link;
		if (!follower->waiting && now >= follower->until) {
			drop_follower(journal, link);
			continue;
		}
		if (follower->number != WATCHER && follower->offset < offset) {
			found = true;
			if (!follower->waiting)
				loop_alarm(follower->until);
		}
		link = &follower->next;
	}
	return found;
}

bool journal_trim(struct journal *journal, uint64_t now)
{
	char path[JOURNAL_NAME_MAX + 32];
	while (journal->count > 1 && journal->end - journal_first(journal) > journal->limit) {
		if (journal->followers != NULL && held(journal, journal->starts[journal->oldest + 1], now))
			return false;
		name_segment(journal, journal_first(journal), path, sizeof(path));
		unlinkat(sandbox.journals, path, 0);
		journal->oldest++;
		journal->count--;
	}
	return true;
}

bool journal_follow(struct journal *journal, struct connection *connection, uint32_t request, uint32_t number, uint64_t offset, bool answered)
{
	uint64_t now = boot_ms();
	/* The same reader, further on: what it held it holds no more. */
	for (struct follower **link = &journal->followers; *link != NULL;) {
		struct follower *follower = *link;
		bool over = now >= follower->until || (follower->connection == connection && follower->number == number);
		if (!follower->waiting && over)
			drop_follower(journal, link);
		else
			link = &follower->next;
	}
	if (journal->follower_count >= FOLLOWERS_MAX)
		return false;
	struct follower *follower = malloc(sizeof(*follower));
	if (follower == NULL)
		return false;
	*follower = (struct follower){
		.next = journal->followers, .connection = connection, .offset = offset, .until = now + HOLD_MS,
		.request = request, .number = number, .waiting = !answered,
	};
	journal->followers = follower;
	journal->follower_count++;
	connection->waits = true;
	return true;
}

void journal_tell(struct journal *journal, bool ended)
{
	for (struct follower *follower = journal->followers; follower != NULL; follower = follower->next) {
		if (!follower->waiting || (journal->end <= follower->offset && !ended))
			continue;
		follower->waiting = false;
		follower->until = boot_ms() + HOLD_MS;
		control_answer(follower->connection, follower->request);
	}
}

void journal_leave(struct journal *journal, const struct connection *connection)
{
	for (struct follower *follower = journal->followers; follower != NULL; follower = follower->next) {
		if (follower->connection != connection)
			continue;
		follower->connection = NULL;
		if (follower->waiting)
			follower->until = boot_ms() + HOLD_MS;
		follower->waiting = false;
	}
}
