/* The thread of init that forks commands; see launcher.c. */
#ifndef ATOLL_LAUNCHER_H
#define ATOLL_LAUNCHER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAUNCHES_MAX 1024

/* Why a launch failed, as it goes through the error pipe; `code` is one of PROTOCOL.md's. */
struct launch_error {
	uint32_t code, error;
};

/*
 * Everything one child needs, prepared by the main thread. From launcher_submit on the descriptors belong to the
 * launcher, which closes them after the fork and `error` last: when the main thread sees the other end of `error`
 * close, neither the launcher nor the child uses this structure any more.
 */
struct launch {
	char **arguments, **environment;
	const char *directory, *user;
	int input, output, errors, script, error; /* input, script: -1 without one; then /dev/null */
	int line;                                 /* of a session, -1: none; it and `error` are above SESSION_LINE then */
	int group;                                /* cgroup v2 directory */
	bool terminal;
	bool worker;                              /* serves files on the connection that is `script`, and executes nothing */
	const uint8_t *early;                     /* what was read of that connection already */
	size_t early_count;
	atomic_int *pid; /* written by the kernel before the child first runs */
};

/* Starts the thread, which joins the v1 groups at once. 0 or an errno. */
int launcher_start(const int *v1_tasks, size_t count);
/* After the main thread has its namespaces and root: lets the thread follow and waits for it. NULL or the failed step. */
const char *launcher_follow(void);
void launcher_submit(struct launch *launch);

#endif
