/* Requests about runs and the sandbox as a whole; see control.c. */
#ifndef ATOLL_CONTROL_H
#define ATOLL_CONTROL_H

#include "connections.h"

/* false: malformed. */
bool control_frame(struct connection *connection, uint8_t type, const uint8_t *body, size_t length);
/* OK or ERROR to a request that had to wait. */
void control_answer(struct connection *connection, uint32_t request);
void control_refuse(struct connection *connection, uint32_t request, uint16_t code, uint32_t error, const char *text);

#endif
