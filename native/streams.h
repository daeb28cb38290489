/*
 * A run's pipes or terminal: output towards its connection, input towards the command.
 *
 * Always true: while a connected client does not read, the pipes are not read either, so that the kernel holds the
 * writer back; without a client they are read and thrown away, so that nothing inside gets SIGPIPE because of us.
 */
#ifndef ATOLL_STREAMS_H
#define ATOLL_STREAMS_H

#include "runs.h"

/* Takes the read ends (for a terminal the one descriptor as output) and the write end of input, or -1. */
void streams_open(struct run *run, int output, int errors, int input);
/* Watches the pipes of a text that is launching: bytes in them say that it has begun. */
void streams_await(struct run *run);
/* The leader is gone: what is in the pipes now goes out before EXITED. */
void streams_note_end(struct run *run);
/* Moves what can be moved, and watches or closes what is left. */
void streams_pump(struct run *run);
void streams_end_input(struct run *run);
/* Input for the command: how much was taken, all of it when nobody reads it any more. */
size_t streams_feed(struct run *run, const uint8_t *bytes, size_t count);
bool streams_takes_input(const struct run *run);

#endif
