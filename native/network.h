/*
 * The network of sandboxes, seen from the machine: a router namespace a node, and one pair of interfaces a sandbox.
 *
 *   sandbox                      router namespace                          machine
 *     eth0  <-- pair -->  s<SLOT>       up  <-- pair, made by `ip` -->  the node's link
 *     ADDRESS4/32, ADDRESS6/128   a route to each; fe80::1
 *     default via GATEWAY4, fe80::1
 *
 * Always true: a link is made only into the network namespace of a process that was in CGROUP/init before and after the
 * namespace was opened, never into the machine's or the router's; names of router namespaces are ours alone.
 */
#ifndef ATOLL_NETWORK_H
#define ATOLL_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#define NETWORK_SLOTS 4000u

struct network_link {
	char *netns; /* NULL: none */
	char *alias;
	uint32_t slot;
	uint8_t address4[4], gateway4[4], address6[16];
	uint32_t has_address6;
};

/* Fields of PROTOCOL.md; the CGROUP field is taken only where `cgroup` is not NULL. As request_parse. */
int network_parse(const uint8_t *body, size_t length, struct network_link *link, char **cgroup, const char **why);
void network_free(struct network_link *link);

/* NULL, or the step that failed, with errno. A link that an earlier life left under the same slot is replaced. */
const char *network_attach(const struct network_link *link, const char *cgroup);

/* Requests of the spawner, in a child of their own. The exit status; what happened is told on `report`. */
int network_serve_attach(const uint8_t *body, size_t length, int report);
int network_serve_router(const char *path, int report);
int network_serve_close(const char *path, int report);
int network_serve_tool(const uint8_t *body, size_t length, int report);

#endif
