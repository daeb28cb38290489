/*
 * The journal of one run: its output as records in segment files below DIRECTORY/journals, and who follows it.
 *
 * Always true: a segment holds whole records only, and the bytes [first, end) of the journal are exactly what the
 * segments hold; what the disk refused is kept in `pending`, at most one record, and nothing is read from the pipes
 * until it is written. A segment that a follower has not passed is not removed.
 */
#ifndef ATOLL_JOURNAL_H
#define ATOLL_JOURNAL_H

#include "connections.h"

#define JOURNAL_NAME_MAX 64
#define JOURNAL_HEADER 13u
#define JOURNAL_CHUNK 65536u
#define JOURNAL_LIMIT_MIN (64u << 10)
#define JOURNAL_LIMIT_MAX ((uint64_t)4 << 30)
#define JOURNAL_LIMIT_DEFAULT (16u << 20)
#define JOURNAL_SEGMENT_FLAGS (O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC)

enum journal_kind { JOURNAL_STDOUT = 1, JOURNAL_STDERR, JOURNAL_LEADER_ENDED, JOURNAL_TREE_ENDED, JOURNAL_DROPPED };

struct follower;

struct journal {
	char name[JOURNAL_NAME_MAX + 1];
	int file;         /* the newest segment, -1: there is none yet */
	bool made;        /* its directory is there */
	bool torn;        /* a part of a refused record may be at its end */
	int error;        /* why the disk refused what is pending */
	uint64_t *starts; /* of the segments, oldest first: starts[oldest] .. starts[oldest + count - 1] */
	size_t oldest, count, capacity;
	uint64_t end, limit, retry_at;
	uint32_t segment; /* bytes of a segment at most */
	uint8_t *pending; /* the record the disk refused, header and all; NULL: none */
	size_t pending_size;
	uint8_t small[32]; /* where it is when there is no memory for it */
	struct follower *followers;
	unsigned follower_count;
};

/* A journal that is not on disk yet: NULL with errno, EEXIST when there is one of that name. */
struct journal *journal_open(const char *name, size_t length, uint64_t limit);
/*
 * Makes its directory and first segment, while the launcher forks. What the disk refuses now is tried again with the
 * first record.
 */
void journal_make(struct journal *journal);
void journal_close(struct journal *journal);
/* The run never began: takes back what is on disk. */
void journal_withdraw(struct journal *journal);

uint64_t journal_first(const struct journal *journal);
/* The payload a record may have at most. */
size_t journal_record_max(const struct journal *journal);
/* `room` has JOURNAL_HEADER bytes before the payload. Only when nothing is pending. */
void journal_append(struct journal *journal, enum journal_kind kind, uint8_t *room, size_t length);
/* Tries again what the disk refused, when it is time: true when nothing is pending. */
bool journal_settle(struct journal *journal, uint64_t now);
/* Removes what is beyond the limit: false while a follower holds it back. */
bool journal_trim(struct journal *journal, uint64_t now);

/* FOLLOW, not to be answered yet or already answered. false: too many. */
bool journal_follow(struct journal *journal, struct connection *connection, uint32_t request, uint32_t number, uint64_t offset, bool answered);
/* Answers who waits for bytes that are there now, or everybody at the end. */
void journal_tell(struct journal *journal, bool ended);
/* The connection has gone; what its followers hold they hold for their grace. */
void journal_leave(struct journal *journal, const struct connection *connection);

#endif
