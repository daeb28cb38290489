/*
 * Directories beneath a directory, by paths of any length that somebody else chose.
 *
 * Always true: the kernel resolves them (RESOLVE_BENEATH), so that no link and no rename meanwhile leads out.
 */
#ifndef ATOLL_BENEATH_H
#define ATOLL_BENEATH_H

#include <stdbool.h>
#include <stddef.h>

/* The first `length` bytes of `path` as an O_PATH descriptor of a directory, made (0755) where missing with `make`; -1 with errno. */
int beneath_directory(int top, const char *path, size_t length, bool make);

#endif
