/*
 * What a CREATE asks for, parsed and checked.
 *
 * Always true of a request that request_parse accepted: the id has only its allowed characters, paths are absolute,
 * UID_BASE is not 0 and its 65,536 ids fit, and every open guard is one we know.
 */
#ifndef ATOLL_REQUEST_H
#define ATOLL_REQUEST_H

#include "network.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAYERS_MAX 480
#define V1_GROUPS_MAX 16
#define SANDBOX_IDS 65536u

enum open_guard {
	OPEN_SECCOMP = 1,
	OPEN_CAPABILITIES = 2,
	OPEN_DUMPABLE = 4,
	OPEN_MASKS = 8,
	OPEN_CGROUP = 16,
};

#define CREATE_NO_NEW_PRIVILEGES 1u

struct create_request {
	char *id, *hostname, *directory, *cgroup, *end_file, *writable;
	char *layers[LAYERS_MAX], *usr_layers[LAYERS_MAX], *v1_groups[V1_GROUPS_MAX];
	size_t layer_count, usr_layer_count, v1_group_count;
	uint32_t uid_base, flags, open_guards;
	uint64_t deadline, generation, fence;
	struct network_link network;
};

/* 0, or -1 when malformed (the connection ends), or an errno with `*why` when it is well-formed and refused. */
int request_parse(const uint8_t *body, size_t length, struct create_request *request, const char **why);
void request_free(struct create_request *request);

#endif
