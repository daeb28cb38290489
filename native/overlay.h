/* The root file system of a sandbox, mounted by the helper; see overlay.c. */
#ifndef ATOLL_OVERLAY_H
#define ATOLL_OVERLAY_H

#include "kernel.h"
#include "request.h"

#include <sys/types.h>

#define ROOT_POINT "m"   /* the sandbox's root */
#define SHARED_POINT "s" /* DIRECTORY/shared, read-only */
#define OWN_POINT "u"    /* DIRECTORY itself, id-mapped */
#define WRITABLE_POINT "w" /* WRITABLE, id-mapped */

#define CLONE_TREE (OPEN_TREE_CLONE_FLAG | OPEN_TREE_CLOEXEC_FLAG)

/* Detached clones of DIRECTORY and DIRECTORY/shared, taken before the tmpfs hid them. */
struct own_trees {
	int directory, shared;
};

/*
 * Mounts at names relative to the current directory, which is a private tmpfs.
 * NULL, or the step that failed with errno set; overlay_explain then has a sentence about it.
 */
const char *overlay_mount(const struct create_request *request, struct own_trees own, pid_t init);
/* The same with the user namespace as a descriptor, which it takes. */
const char *overlay_mount_in(const struct create_request *request, struct own_trees own, int user_namespace);
const char *overlay_explain(void);

/* Id-maps a detached clone: 0 or -1. */
int idmap_tree(int tree, int user_namespace, uint64_t attributes);

/* Makes `id` the file-system ids of the process and keeps its capabilities: 0 or -1. */
int overlay_take_ids(uint32_t id);

#endif
