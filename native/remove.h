/* Removing a tree of any depth; see remove.c. */
#ifndef ATOLL_REMOVE_H
#define ATOLL_REMOVE_H

/* Removes the tree at an absolute path and reports. Returns the exit status of the child that runs it. */
int remove_tree(const char *path, int report);

#endif
