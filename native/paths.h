/*
 * Paths of file requests, and what every file operation of a worker shares.
 *
 * Always true: a path is resolved by the kernel with the worker's own rights inside the sandbox's root, like any
 * process's; what must stay beneath a directory goes by descriptors instead. Nothing here blocks on a FIFO or device.
 */
#ifndef ATOLL_PATHS_H
#define ATOLL_PATHS_H

#include "worker.h"

#include <limits.h>

#define PATH_FLAGS 010000000 /* O_PATH */
#define DIRECTORY_ONLY (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
#define TEMPORARY_NAME 24

/* The text at the end of a body from `offset` on: NULL after answering a fault. A NUL in it ends the worker. */
const char *path_at(const struct request *request, size_t offset);
/* Two texts with a NUL between them. The second may be anything when `any`. */
bool paths_at(const struct request *request, size_t offset, const char **first, const char **second, bool any);

/*
 * The directory a path's last name is in, as an O_PATH descriptor, and that name; -1 with errno. With `parents` what is
 * missing on the way is made. The last name is never "." or ".."; "/" has none (EBUSY).
 */
int path_parent(const char *path, bool parents, char name[NAME_MAX + 1]);
/* The same for what a write to the path would reach: final symbolic links are followed, also to what is not there. */
int path_target(const char *path, bool parents, char name[NAME_MAX + 1]);

/* A name nobody else uses: ".atoll-" and hex digits. */
void temporary_name(char name[TEMPORARY_NAME]);
/* All of it, or -1 with errno. */
int write_all(int file, const uint8_t *bytes, size_t length);
/* Opens a regular file for reading, having looked first: -1 with errno, ENXIO for a FIFO, socket or device. */
int open_regular(int directory, const char *name, int flags, struct stat *info);
/* The target of a symbolic link, or NULL. Valid until the next call. */
const char *link_target(int directory, const char *name);
/* Whether it is one of temporary_name's. */
bool is_temporary(const char *name);
void fault_errno(const struct request *request, const char *text);

#endif
