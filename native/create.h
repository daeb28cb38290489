/* Making one sandbox, in a child of the spawner; see create.c. */
#ifndef ATOLL_CREATE_H
#define ATOLL_CREATE_H

#include "request.h"

#include <sys/types.h>

/* Makes the sandbox and reports on `report`. Never returns: the caller is a child that has no other work. */
_Noreturn void create_sandbox(const struct create_request *request, int report, char **argv);

/* Writes the map of `pid`'s user namespace: 65,536 ids from 0 inside, from `base` outside. 0 or -1. */
int write_id_maps(pid_t pid, uint32_t base);

#endif
