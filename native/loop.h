/*
 * Init's event loop: descriptors, one timer, and what is to be done at the end of a round.
 *
 * Always true: a descriptor is taken out of epoll before it is closed, because a forked child may still hold the same
 * open file and keep it alive there. Nothing called from the loop blocks.
 */
#ifndef ATOLL_LOOP_H
#define ATOLL_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

struct source {
	int fd; /* -1: closed */
	bool watched;
	uint32_t interest;
	void (*ready)(struct source *source, uint32_t events);
};

bool loop_open(void);
/* Runs `round` after each batch of events, and `alarm` when the time set by loop_alarm has come. Never returns. */
_Noreturn void loop_run(void (*round)(void), void (*alarm)(uint64_t now));
/* Wakes at this boot time or earlier. A time later than one already set changes nothing; 0 means nothing. */
void loop_alarm(uint64_t boot_ms);
uint64_t boot_ms(void);

/* false: the kernel has no room for another watch. */
bool source_watch(struct source *source, uint32_t interest);
void source_unwatch(struct source *source);
void source_close(struct source *source);

#endif
