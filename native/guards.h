/*
 * What a command may not do although it is root inside: the capability set and the system call filter.
 *
 * Always true: both are in force before execve, and neither can be lifted afterwards by a setuid program, because the
 * bounding set and the filter are inherited.
 */
#ifndef ATOLL_GUARDS_H
#define ATOLL_GUARDS_H

#include <stdbool.h>

/* Drops everything but the kept set from the bounding set of the calling thread. 0 or -1. */
int guards_drop_bounding(void);
/* Makes the kept set (for uid 0) or nothing the whole of the calling process's capabilities. 0 or -1. */
int guards_set_capabilities(bool root);
/* Clears dumpable; credential changes reset it, so this follows each of them. */
void guards_hide_memory(void);

/* filter.c: builds the filter once, then loads it into the calling process. */
void filter_prepare(void);
int filter_load(void);

#endif
