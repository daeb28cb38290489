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
#include "journal.h"
#include "launcher.h"
#include "records.h"

#include <sys/types.h>

#define STDIN_HELD_MAX (256u << 10)

enum run_flag {
	RUN_TERMINAL = 1, RUN_STDIN = 2, RUN_KILL_ON_END = 4, RUN_CHECK_TOKEN = 8,
	RUN_SESSION = 16, RUN_FORK = 32, RUN_KEEP_VARIABLES = 64, RUN_DETACH = 128, RUN_FLAGS_KNOWN = 255,
};

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
	struct record *record; /* NULL: a file worker, or refused */
	struct connection *connection; /* NULL: detached, output is thrown away */
	struct launch launch;
	void *memory; /* strings of the launch, until the error pipe ends; or an order for a session */
	size_t order_bytes;
	struct source error, group;
	struct stream output, errors;
	struct source input;
	struct buffer held; /* input the command has not taken */
	bool input_ended;
	struct journal *journal; /* NULL: output goes to the connection, or nowhere */
	uint64_t input_taken;    /* bytes of INPUT that are in the pipe or held */
	struct parked *parked;   /* INPUTs to answer */
	struct launch_error failure;
	bool worker; /* serves files on its connection; see workers.h */
	struct shell *shell;   /* the run is a session; see sessions.h */
	struct run *session;   /* it runs in, or was forked from, this one; NULL: in none, or that is over */
	struct birth *birth, *buried; /* being forked from a session; buried: over, freed with the run */
	bool in_session;       /* a text in the shell of a session: no process, no group of its own */
	bool died_with_session; /* ended by the end of the shell, not by an answer of it */
	bool launching, reaped, noted, exit_sent, tree_empty, timed_out, touched;
	bool exit_recorded, tree_recorded, tree_announced; /* with a journal: its records are written or pending */
	uint64_t pending_leader, pending_tree; /* signals for a command that is still to be forked, as bits */
	uint64_t asked; /* bit n: signal n + 1 was asked for through the protocol */
	uint64_t timeout_at, kill_at; /* in the time of commands; see pace.h */
	uint64_t oom_kills;
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
/* The connection ended: nobody waits for the answers to its requests any more. */
void runs_leave(const struct connection *connection);
/* Looks at the run again at the end of the round. */
void run_touch(struct run *run);

struct run *run_of(const struct record *record);
bool run_signal(struct run *run, uint8_t target, uint8_t signal);
bool run_resize(struct run *run, uint16_t columns, uint16_t rows);

/*
 * run-journal.c: writes the records of the ends when it is their turn (`drained`: all that the leader wrote is, `closed`: all there
 * will ever be), and tells followers. true when nothing is left to write.
 */
bool journal_ends(struct run *run, bool drained, bool closed);
/* The state that the records on disk tell of, which is behind what has happened while the disk refuses. */
enum record_state journal_holds(const struct run *run);

/* For sessions.c: the command runs, or (failure.code) it never will; then the leader of a run without a process of its own has ended. */
void run_launched(struct run *run);
void run_tell_started(struct run *run);
void run_ended(struct run *run, uint32_t status);

/* run-table.c */
int runs_take_slot(struct run *run);
void runs_leave_slot(struct run *run);
atomic_int *runs_pid_of(int slot);
/* In the order of slots: the first after `run` (NULL: of all), or NULL. Runs may be freed meanwhile, but not `run`. */
struct run *runs_next(const struct run *run);
/* The run whose leader a process that was reaped is, or NULL; from now on it has no leader. */
struct run *runs_take_pid(int pid);
/* Whether a process is the leader of a run. */
bool runs_have_pid(int pid);

/* For run-request.c. */
void run_free(struct run *run);
uint64_t runs_oom_kills(void);
void run_begin(struct run *run);

void runs_reap(void);
/* Looks at every touched run; false when there was none. */
bool runs_round(void);
void runs_alarm(void);
uint32_t runs_live(void);
/* Those that are not file workers. */
uint32_t runs_of_commands(void);
void runs_signal_all(uint8_t signal, bool asked);

#endif
