/*
 * One cgroup v2 directory per run, CGROUP/run/<slot>, which is what a tree of processes cannot leave.
 *
 * Always true: a slot is used by at most one run at a time, and is given to the next only when nothing lives in its
 * group. Directories of low slots are kept between runs, because making one costs more than a fork.
 */
#ifndef ATOLL_GROUPS_H
#define ATOLL_GROUPS_H

#include <stdbool.h>

#define SLOTS 1024

/* A descriptor of the group's directory, owned by groups.c, or -1. */
int group_open(int slot);
bool group_populated(int slot);
/* The descriptor whose EPOLLPRI says that group_populated may have changed, or -1. */
int group_events(int slot);
bool group_has(int slot, int pid);
/* Moves a process of another group into this one. */
bool group_take(int slot, int pid);
void group_kill(int slot);
void group_signal(int slot, int signal);
/* Nothing lives in it any more: keep or remove. */
void group_release(int slot);
void groups_kill_all(void);
bool groups_populated(void);
/* The last act of init: what it made it removes. */
void groups_remove_all(void);

#endif
