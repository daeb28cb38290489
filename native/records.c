/* See records.h. */
#include "records.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096u

static struct record *buckets[BUCKETS];
static struct record *oldest, *newest;
static uint32_t kept;

static struct record **bucket_of(const char *id, size_t length)
{
	uint32_t hash = 2166136261u;
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (uint8_t)id[i]) * 16777619u;
	return &buckets[(hash ^ hash >> 15) % BUCKETS];
}

struct record *record_find(const char *id, size_t length)
{
	for (struct record *record = *bucket_of(id, length); record != NULL; record = record->next)
		if (record->id_length == length && memcmp(record->id, id, length) == 0)
			return record;
	return NULL;
}

struct record *record_add(const char *id, size_t length, int slot)
{
	struct record **bucket = bucket_of(id, length);
	struct record *record = calloc(1, sizeof(*record) + length);
	if (record == NULL)
		return NULL;
	memcpy(record->id, id, length);
	record->id_length = (uint8_t)length;
	record->slot = (int16_t)slot;
	record->state = LEADER_RUNS;
	record->next = *bucket;
	*bucket = record;
	return record;
}

void record_ended(struct record *record)
{
	record->slot = -1;
	record->session = NULL;
	record->state = ALL_ENDED;
	record->older = newest;
	if (newest != NULL)
		newest->newer = record;
	else
		oldest = record;
	newest = record;
	kept++;
	if (kept > RECORDS_KEPT)
		record_remove(oldest);
}

void record_remove(struct record *record)
{
	struct record **link = bucket_of(record->id, record->id_length);
	while (*link != record)
		link = &(*link)->next;
	*link = record->next;
	if (record->slot < 0) {
		if (record->older != NULL)
			record->older->newer = record->newer;
		else
			oldest = record->newer;
		if (record->newer != NULL)
			record->newer->older = record->older;
		else
			newest = record->older;
		kept--;
	}
	free(record);
}

uint32_t records_kept(void)
{
	return kept;
}

void records_each(void (*visit)(const struct record *record, void *context), void *context)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (const struct record *record = buckets[i]; record != NULL; record = record->next)
			visit(record, context);
}

void record_fields(struct frame *frame, const struct record *record)
{
	frame_field(frame, 1, record->id, record->id_length);
	frame_field_u32(frame, 2, (uint32_t)record->pid);
	frame_field(frame, 3, &record->state, 1);
	if (record->state >= TREE_LIVES) {
		frame_field_u32(frame, 4, record->status);
		frame_field(frame, 5, &record->why, 1);
	}
	frame_field_u64(frame, 6, record->started);
	if (record->state >= TREE_LIVES)
		frame_field_u64(frame, 7, record->ended);
	if (record->kind != KIND_PLAIN_RUN)
		frame_field(frame, 8, &record->kind, 1);
	if (record->session != NULL)
		frame_field(frame, 9, record->session->id, record->session->id_length);
}
