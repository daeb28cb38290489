/*
 * What attacks have in common. Each prints one line a step, `name=ok` or `name=ERRNO`, so that the same program says the same words where
 * the attack is refused and where it succeeds.
 */
#ifndef ATTACK_H
#define ATTACK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

struct attack {
	const char *name;
	void (*run)(int count, char **arguments);
};

/* Says how a step went: `result` is what the system call returned. */
static inline void said(const char *name, long result)
{
	printf("%s=%s\n", name, result >= 0 ? "ok" : strerrorname_np(errno));
	fflush(stdout);
}

extern const struct attack call_attacks[], process_attacks[], resource_attacks[], file_attacks[], swap_attacks[];

#endif
