/* See arena.h. */
#include "arena.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define SMALLEST 5u /* 32 bytes, header included */
#define LARGEST 16u /* 64 KiB; above, a mapping of its own */
#define CHUNK (1u << 20)

struct header {
	uint32_t order; /* the block is 1 << order bytes */
	uint32_t padding;
	struct header *next; /* only while free; the header is 16 bytes for alignment */
};

static struct header *free_blocks[LARGEST + 1];
static char *chunk;
static size_t chunk_left, held;

static unsigned order_of(size_t size)
{
	unsigned order = SMALLEST;
	while (order < 48 && ((size_t)1 << order) < size + sizeof(struct header))
		order++;
	return order;
}

static void *map(size_t size)
{
	if (size > ARENA_MAX || held > ARENA_MAX - size)
		return NULL;
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	held += size;
	return memory;
}

void *arena_take(size_t size)
{
	unsigned order = order_of(size);
	size_t bytes = (size_t)1 << order;
	struct header *block;
	if (order > LARGEST) {
		block = map(bytes);
	} else if (free_blocks[order] != NULL) {
		block = free_blocks[order];
		free_blocks[order] = block->next;
	} else {
		if (chunk_left < bytes) {
			/* What is left of the old chunk is lost; it is less than one block. */
			char *fresh = map(CHUNK);
			if (fresh == NULL)
				return NULL;
			chunk = fresh;
			chunk_left = CHUNK;
		}
		block = (struct header *)chunk;
		chunk += bytes;
		chunk_left -= bytes;
	}
	if (block == NULL)
		return NULL;
	block->order = order;
	return block + 1;
}

void arena_give(void *memory)
{
	if (memory == NULL)
		return;
	struct header *block = (struct header *)memory - 1;
	if (block->order > LARGEST) {
		held -= (size_t)1 << block->order;
		munmap(block, (size_t)1 << block->order);
		return;
	}
	block->next = free_blocks[block->order];
	free_blocks[block->order] = block;
}

void *arena_grow(void *memory, size_t size)
{
	if (memory == NULL)
		return arena_take(size);
	struct header *block = (struct header *)memory - 1;
	size_t room = ((size_t)1 << block->order) - sizeof(*block);
	if (size <= room)
		return memory;
	void *grown = arena_take(size);
	if (grown == NULL)
		return NULL;
	memcpy(grown, memory, room);
	arena_give(memory);
	return grown;
}

char *arena_copy(const char *bytes, size_t length)
{
	char *copied = arena_take(length + 1);
	if (copied != NULL) {
		memcpy(copied, bytes, length);
		copied[length] = 0;
	}
	return copied;
}
