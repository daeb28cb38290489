/* Requests about runs and the sandbox as a whole; see control.c. */
#ifndef ATOLL_CONTROL_H
#define ATOLL_CONTROL_H

#include "connections.h"

/* false: malformed. */
bool control_frame(struct connection *connection, uint8_t type, const uint8_t *body, size_t length);

#endif
