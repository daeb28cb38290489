/*
 * The directory and the first segment of the next journal, made ahead: to make them can take a disk as long as it takes
 * to start a command, and whoever waits for the first byte would wait for both.
 *
 * Always true: there is at most one, under a name that no run can have. Without one a journal is made as it is needed.
 */
#ifndef ATOLL_JOURNAL_SPARE_H
#define ATOLL_JOURNAL_SPARE_H

#include <stdint.h>

/* Of a life before this one. */
void spare_forget(void);
/* Gives it this name: the first segment, open for appending, or -1 when there is none to be had. */
int spare_take(const char *name);
/* One is to be made at this time (CLOCK_BOOTTIME), if there is none then. */
void spare_want(uint64_t at);
void spare_alarm(uint64_t now);

#endif
