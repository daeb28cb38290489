/*
 * Runs: commands from RUN to TREE_ENDED.
 *
 *   launching --error pipe ends--> leader runs --reaped--> leader ended --group empty--> tree ended
 *       \--error record--> refused (nothing ran; the slot waits for its child)
 *
 * Always true: a run occupies a slot, which is its index in the pid table and the name of its cgroup, until nothing of
 * it lives. EXITED follows everything the leader wrote; TREE_ENDED follows EXITED and is last.
 */
#ifndef ATOLL_RUNS_H
#define ATOLL_RUNS_H

#include "connections.h"
#include "launcher.h"
#include "records.h"

#include <sys/types.h>

#define STDIN_HELD_MAX (256u << 10)

enum run_flag { RUN_TERMINAL = 1, RUN_STDIN = 2, RUN_KILL_ON_END = 4, RUN_CHECK_TOKEN = 8, RUN_FLAGS_KNOWN = 15 };

struct stream {
	struct source source;
	struct run *run;
	uint8_t type;
	bool readable; /* an event said so */
	size_t owed;   /* bytes that must go out before EXITED */
};

struct run {
	int slot;
	uint32_t flags;
	struct record *record;
	struct connection *connection; /* NULL: detached, output is thrown away */
	struct launch launch;
	void *memory; /* strings of the launch, until the error pipe ends */
	struct source error, group;
	struct stream output, errors;
	struct source input;
	struct buffer held; /* input the command has not taken */
	bool input_ended;
	struct launch_error failure;
	bool launching, reaped, noted, exit_sent, tree_empty, timed_out, touched;
	uint64_t pending_leader, pending_tree; /* signals for a command that is still to be forked, as bits */
	uint64_t asked; /* bit n: signal n + 1 was asked for through the protocol */
	uint64_t timeout_at, kill_at, oom_kills;
	uint32_t grace;
	struct run *next_touched;
};

/* run-request.c: a run parsed and ready to launch, or NULL after refusing; `*malformed` says the connection must end. */
struct run *run_prepare(struct connection *connection, const uint8_t *body, size_t length, bool *malformed);

/* Frames of a run's connection. false: malformed. */
bool run_frame(struct connection *connection, uint8_t type, const uint8_t *body, size_t length);
size_t run_input(struct run *run, const uint8_t *bytes, size_t count);
bool run_wants_input(const struct run *run);
void run_detach(struct run *run);
/* Looks at the run again at the end of the round. */
void run_touch(struct run *run);

struct run *run_of(const struct record *record);
bool run_signal(struct run *run, uint8_t target, uint8_t signal);
bool run_resize(struct run *run, uint16_t columns, uint16_t rows);

/* For run-request.c. */
int runs_take_slot(struct run *run);
atomic_int *runs_pid_of(int slot);
void run_free(struct run *run);
uint64_t runs_oom_kills(void);
void run_begin(struct run *run);

void runs_reap(void);
/* Looks at every touched run; false when there was none. */
bool runs_round(void);
void runs_alarm(uint64_t now);
uint32_t runs_live(void);
void runs_signal_all(uint8_t signal, bool asked);

#endif
