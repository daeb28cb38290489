/*
 * Connections to init.sock: framing, greeting, output and back-pressure. What a frame means is decided in control.c,
 * runs.c and relay.c.
 *
 * Always true: init never waits for a peer. Output is held in a bounded buffer and whoever produces it looks at
 * connection_has_room first; a connection that ended stays allocated until the end of the round.
 */
#ifndef ATOLL_CONNECTIONS_H
#define ATOLL_CONNECTIONS_H

#include "bytes.h"
#include "loop.h"

#define CONNECTIONS_MAX 4096
#define OUTPUT_ROOM 65536u

enum connection_kind { KIND_UNKNOWN = 0, KIND_CONTROL = 1, KIND_RUN = 2, KIND_RELAY = 3, KIND_FILES = 4 };

struct run;
struct relay;

struct connection {
	struct source source;
	enum connection_kind kind;
	struct buffer in, out;
	uint32_t stdin_left; /* bytes of the current STDIN frame still to come */
	bool closing;        /* ends when its output is out */
	bool draining;       /* its output is out; the peer has yet to close */
	uint64_t draining_since;
	bool raw;            /* a relay past CONNECTED: bytes, no frames */
	bool half_closing;   /* no output follows what is queued */
	bool subscribed;
	bool handed; /* to a file worker: init only looks for its end */
	bool waits; /* a FOLLOW or INPUT of it may wait for its answer */
	bool touched;
	struct run *run;
	struct relay *relay, *buried; /* buried: ended, freed with the connection */
	struct connection *next, *previous, *next_touched, *next_dead;
};

bool connections_listen(int listener);
/* Marks output for the end of the round. */
void connection_touch(struct connection *connection);
bool connection_has_room(const struct connection *connection);
/*
 * Sends everything queued and no more, then drops what comes until the peer closes: a close with unread input would
 * make a write of the peer fail before it has read our last frame. A client of a relay that has read everything and
 * talks on for seconds hears by such a close that nobody listens.
 */
void connection_finish(struct connection *connection);
/* Tells the peer, after everything queued, that no more comes. */
void connection_half_close(struct connection *connection);
void connection_end(struct connection *connection);
/* Whoever held its input back has room again. */
void connection_resume(struct connection *connection);
/* Sends what is queued now: false when it cannot all be sent. */
bool connection_flush(struct connection *connection);
void connection_refuse(struct connection *connection, uint16_t code, uint32_t error, const char *text);
/* An EVENT frame to every subscriber. */
struct record;
void connections_announce(const struct record *record);
/* Sends what is queued and frees what ended; at the end of each round. */
void connections_round(void);
bool connections_idle(void);

#endif
