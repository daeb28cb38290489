/*
 * Memory for a file worker, which is forked by one thread of two: libc's allocator may be locked for ever there.
 *
 * Always true: nothing here takes a lock. Blocks come in powers of two; small ones are kept for reuse, large ones go
 * back to the kernel. What a worker may hold is bounded; past the bound there is no memory.
 */
#ifndef ATOLL_ARENA_H
#define ATOLL_ARENA_H

#include <stddef.h>

#define ARENA_MAX (256u << 20)

void *arena_take(size_t size);
/* The block with room for `size`, its first bytes the same; NULL leaves the old one. */
void *arena_grow(void *block, size_t size);
void arena_give(void *block);
char *arena_copy(const char *bytes, size_t length);

#endif
