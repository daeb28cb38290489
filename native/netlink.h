/*
 * Changes to links, addresses and routes as one batch of rtnetlink messages: built in memory, sent in one call, each
 * acknowledged by the kernel.
 *
 * Always true: a batch that did not fit or was built wrong is never sent; netlink_send answers 0 only when the kernel
 * accepted every message.
 */
#ifndef ATOLL_NETLINK_H
#define ATOLL_NETLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NETLINK_ROOM 4096u

struct netlink_batch {
	_Alignas(8) uint8_t bytes[NETLINK_ROOM];
	size_t length, message;
	unsigned count;
	bool failed;
};

void netlink_begin(struct netlink_batch *batch, uint16_t type, uint16_t flags, const void *header, size_t size);
void netlink_add(struct netlink_batch *batch, uint16_t type, const void *bytes, size_t size);
void netlink_add_u32(struct netlink_batch *batch, uint16_t type, uint32_t value);
/* Attributes between the two are inside an attribute; `header` stands before them (size 0: none). */
size_t netlink_nest(struct netlink_batch *batch, uint16_t type, const void *header, size_t size);
void netlink_end_nest(struct netlink_batch *batch, size_t nest);

/* In the network namespace of the caller. 0, or -1 with the errno of the first refusal and `*refused` counting from 0. */
int netlink_send(const struct netlink_batch *batch, unsigned *refused);

#endif
