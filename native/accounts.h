/*
 * Users and groups of the sandbox, read from its own /etc/passwd and /etc/group without libc's machinery.
 *
 * Always true: the files are hostile. They are opened without blocking, must be regular, and only their first
 * megabyte is read; a malformed line is skipped. Safe to call between fork and execve.
 */
#ifndef ATOLL_ACCOUNTS_H
#define ATOLL_ACCOUNTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GROUPS_MAX 64

struct account {
	uid_t uid;
	gid_t gid;
	gid_t groups[GROUPS_MAX];
	size_t group_count;
};

/* "" is root without a look at any file. 0, or an errno: ENOENT for an unknown name, ERANGE for an id outside 0 to 65,535. */
int account_find(const char *user, struct account *account);

#endif
