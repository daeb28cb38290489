/*
 * Input of a run with a journal: INPUT requests, which name the offset of their first byte so that they can be repeated.
 *
 * Always true: a byte of input goes into the pipe once, in order; a request is answered when all its bytes are in the
 * pipe, or when it is known that they never will be.
 */
#ifndef ATOLL_INPUT_H
#define ATOLL_INPUT_H

#include "runs.h"

/* Takes an INPUT request and answers it now or later. No bytes: the end of input. */
void input_offer(struct run *run, struct connection *connection, uint32_t request, uint64_t offset, const uint8_t *bytes, size_t count);
/* Answers what can be answered. */
void input_tell(struct run *run);
/* Nothing will be taken any more. */
void input_refuse_all(struct run *run);
void input_leave(struct run *run, const struct connection *connection);

#endif
