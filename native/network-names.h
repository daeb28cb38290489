/* Which files stand for router namespaces of ours; see network-router.c. */
#ifndef ATOLL_NETWORK_NAMES_H
#define ATOLL_NETWORK_NAMES_H

#include <stdbool.h>
#include <string.h>

#define ROUTER_DIRECTORY "/run/netns"
#define ROUTER_PREFIX ROUTER_DIRECTORY "/atoll-"

static inline bool network_is_router(const char *path)
{
	size_t prefix = sizeof(ROUTER_PREFIX) - 1, length = strlen(path);
	return length > prefix && length <= prefix + 32 && strncmp(path, ROUTER_PREFIX, prefix) == 0 &&
	       strspn(path + prefix, "0123456789abcdef") == length - prefix;
}

#endif
