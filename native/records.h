/*
 * What init remembers of runs: the operation ids it has started in this life, and how they ended.
 *
 * Always true: an id is in the table at most once; records of ended runs are at most RECORDS_KEPT, the oldest dropped
 * first; a record of a run whose tree lives is never dropped.
 */
#ifndef ATOLL_RECORDS_H
#define ATOLL_RECORDS_H

#include "bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_ID_MAX 64
#define RECORDS_KEPT 10000

enum record_state { LEADER_RUNS = 1, TREE_LIVES = 2, ALL_ENDED = 3 };
enum record_kind_of_run { KIND_PLAIN_RUN = 0, KIND_SESSION = 1, KIND_IN_SESSION = 2, KIND_FROM_SESSION = 3 };
enum why { BY_ITSELF = 0, BY_TIMEOUT = 1, BY_SIGNAL = 2, BY_MEMORY = 3, BY_ENDING = 4 };

struct record {
	struct record *next;          /* in its bucket */
	struct record *older, *newer; /* among the ended */
	uint64_t started, ended;
	int32_t pid;
	uint32_t status;
	uint64_t journal_first, journal_end; /* of an ended run with a journal */
	int16_t slot; /* -1: ended */
	uint8_t state, why, id_length, kind;
	const struct record *session; /* of a live run in or from a session that lives */
	bool journal;
	char id[];
};

struct record *record_find(const char *id, size_t length);
/* NULL without memory. The id must not be in the table. */
struct record *record_add(const char *id, size_t length, int slot);
void record_ended(struct record *record);
void record_remove(struct record *record);
uint32_t records_kept(void);
void records_each(void (*visit)(const struct record *record, void *context), void *context);
/* The fields of RUN_IS and EVENT. */
void record_fields(struct frame *frame, const struct record *record);

#endif
