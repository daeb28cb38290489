/*
 * One entry of a layer, copied with all that belongs to it: bytes and holes, owner, mode, times, extended attributes, and
 * its hard links.
 *
 * Always true: nothing is followed; a copy shares blocks with the original only by reflink, never by a hard link. Names
 * of one inode become names of one inode again: a file with several names is made once in an area beside the copy, under
 * the number it has in its source, and linked from there, so that neither memory nor descriptors grow with their number.
 */
#ifndef ATOLL_LAYER_ENTRY_H
#define ATOLL_LAYER_ENTRY_H

#include <stdbool.h>
#include <sys/stat.h>

struct link_area {
	int parent, directory;
	char name[256];
};

/* Makes the area beside the tree that `target` will be; removes it and what is in it. 0 or -1 with errno. */
int link_area_open(struct link_area *area, const char *target);
int link_area_close(struct link_area *area);

/* Anything but a directory. `source` tells apart the trees whose inode numbers may be equal. 0 or -1 with errno. */
int entry_copy(int from, const char *name, int to, const struct link_area *area, unsigned source);

/* Gives the directory `to` the owner, mode, times and extended attributes of `from`; without the overlay's own when `plain`. */
int entry_dress(int from, int to, bool plain);

bool entry_is_whiteout(const struct stat *info);

#endif
