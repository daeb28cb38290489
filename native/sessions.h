/*
 * Sessions: runs whose leader is a bash with our object in it (shell/), and the runs that happen in them.
 *
 *   shell starts --READY--> idle --order--> busy --DONE or NOT_RUN--> idle
 *       \--it ends first--> refused (15)       \--the shell ends--> the session is over
 *
 * Always true: a shell has at most one unanswered order (`current`, or `owed`). What comes on its line is hostile: a message that does not fit the
 * state ends the session and nothing else. When the shell ends, everything in its group and everything that was forked from it is killed,
 * except what was to be detached.
 */
#ifndef ATOLL_SESSIONS_H
#define ATOLL_SESSIONS_H

#include "run-request.h"
#include "runs.h"
#include "session-wire.h"

#define COMPLAINT_MAX 160

struct shell {
	struct source line;
	struct run *run, *current;
	uint32_t serial;
	bool ready, told; /* told: STARTED or REFUSED is sent */
	bool owed;        /* an answer to an order whose run is over already; until it comes the shell is busy */
	uint64_t due;     /* READY, or the answer to an order that is not the user's text; 0: whenever */
	size_t complaint_length;
	char complaint[COMPLAINT_MAX]; /* what a shell said on stderr before it was one of ours */
};

/* session-request.c: NULL, or what is the problem, with its code. */
const char *session_open(struct run *run);
const char *session_compose(struct run *run, const struct wish *wish, const uint8_t *body, size_t length, uint16_t *code);
/* The session that a request names, or NULL after refusing. */
struct run *session_named(struct connection *connection, const struct wish *wish);

/* Sends the order that was composed; a failure is told as that of a launch. */
void session_order(struct run *run);
/* Of a session: looks after its beginning. true: the run goes on as any other. */
bool session_settle(struct run *run);
/* The shell has ended: so does all that is its own. */
void session_over(struct run *run);
/* The run is about to be freed. */
void session_release(struct run *run);
/* `now` is in the time of commands; see pace.h. */
void session_alarm(struct run *run, uint64_t now);
/* The text of a refusal that has no text of its own. */
const char *session_refusal(const struct run *run);
/* The run is over before its shell has answered. */
void session_let_go(struct run *run);
/* Ends a session that does not keep to the protocol. */
void session_break(struct run *run);

/* births.c: a process that is being forked from a session. */
struct birth {
	struct source source;
	struct run *run;
	int pid;
	struct launch_error trouble; /* what the process said of itself, or that it said nothing */
	bool said, shell_said;
	uint64_t due;
};

/* Takes our end of the pair. */
bool birth_open(struct run *run, int ours);
/* The shell has said that the process exists. */
void birth_confirmed(struct run *run);
void birth_failed(struct run *run, uint32_t code, uint32_t error);
void birth_release(struct run *run);

#endif
