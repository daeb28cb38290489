/*
 * Init's half of a file worker: its launch and its end. What it does is in worker.c.
 *
 * Always true: a worker is a run without a record. From the launch on init neither reads nor writes its connection and
 * only watches for its end; whichever ends first, worker or connection, ends the other.
 */
#ifndef ATOLL_WORKERS_H
#define ATOLL_WORKERS_H

#include "connections.h"

/* The WORKER frame. false: malformed. Sets `handed` when a worker is to be begun. */
bool worker_frame(struct connection *connection, uint8_t type, const uint8_t *body, size_t length);
/* Launches it with what followed the frame. */
void worker_begin(struct connection *connection, const uint8_t *early, size_t count);

#endif
