/* Raw bytes between a connection and a port inside; see relay.c. */
#ifndef ATOLL_RELAY_H
#define ATOLL_RELAY_H

#include "connections.h"

bool relay_frame(struct connection *connection, uint8_t type, const uint8_t *body, size_t length);
/* Bytes taken of what the client sent. */
size_t relay_input(struct relay *relay, const uint8_t *bytes, size_t count);
bool relay_wants_input(const struct relay *relay);
/* The client has sent its last byte: true while the other direction goes on. */
bool relay_input_ended(struct relay *relay);
void relay_output_has_room(struct relay *relay);
void relay_end(struct relay *relay);

#endif
