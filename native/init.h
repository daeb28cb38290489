/* PID 1 of a sandbox; see init.c. */
#ifndef ATOLL_INIT_H
#define ATOLL_INIT_H

#include "request.h"

/* What the helper opened for init as real root. -1: absent. */
struct init_start {
	int orders, answers; /* pipes from and to the helper */
	int listener;
	int run_group;       /* CGROUP/run */
	int journals;        /* DIRECTORY/journals */
	int memory_events;   /* counts kills for lack of memory: v2 memory.events or v1 memory.oom_control */
	int v1_tasks[V1_GROUPS_MAX];
	size_t v1_count;
};

/* What the rest of init asks about the sandbox it serves. */
struct sandbox {
	uint64_t generation, deadline, fence;
	uint32_t open_guards;
	bool no_new_privileges;
	int run_group, memory_events, terminals; /* terminals: the devpts root */
	int own_directory;                       /* DIRECTORY through its id-mapped mount, for the end file */
	int journals;                            /* DIRECTORY/journals, not through the id-mapped mount: ours by the shifted id */
	char *end_file;
};

extern struct sandbox sandbox;

/* Begins the end of the sandbox: TERM to all, KILL after the grace. A second call changes nothing. */
void init_end(const char *reason, uint32_t grace_ms);
bool init_ending(void);

_Noreturn void init_main(const struct create_request *request, struct init_start *start, char **argv);

#endif
