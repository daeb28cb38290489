/*
 * Thin names for system calls that libc headers of our oldest targets lack, with their structures.
 *
 * Always true: nothing here keeps state, and every function returns as the kernel does, -1 with errno on failure.
 */
#ifndef ATOLL_KERNEL_H
#define ATOLL_KERNEL_H

#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define OPEN_TREE_CLONE_FLAG 1u
#define OPEN_TREE_CLOEXEC_FLAG 02000000u
#define MOVE_MOUNT_FROM_EMPTY 0x00000004u
#define AT_EMPTY 0x1000u
#define ATTR_RDONLY 0x00000001u
#define ATTR_NOSUID 0x00000002u
#define ATTR_NODEV 0x00000004u
#define ATTR_NOEXEC 0x00000008u
#define ATTR_IDMAP 0x00100000u

#define NEW_TIME 0x00000080u
#define NEW_MOUNT 0x00020000u
#define NEW_CGROUP 0x02000000u
#define NEW_UTS 0x04000000u
#define NEW_IPC 0x08000000u
#define NEW_USER 0x10000000u
#define NEW_PID 0x20000000u
#define NEW_NET 0x40000000u
#define CLONE_AS_SIBLING 0x00008000u /* CLONE_PARENT */
#define CLONE_STORE_PID 0x00100000u  /* CLONE_PARENT_SETTID: stored before the child first runs */
#define CLONE_IN_CGROUP 0x200000000ull

struct mount_attributes {
	uint64_t set, clear, propagation, user_namespace;
};

struct clone_request {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	uint64_t set_tid, set_tid_size, cgroup;
};

static inline int kernel_open_tree(int directory, const char *path, unsigned flags)
{
	return (int)syscall(428, directory, path, flags);
}

static inline int kernel_move_mount(int from, const char *from_path, int to, const char *to_path, unsigned flags)
{
	return (int)syscall(429, from, from_path, to, to_path, flags);
}

static inline int kernel_mount_setattr(int directory, const char *path, unsigned flags, struct mount_attributes *attr)
{
	return (int)syscall(442, directory, path, flags, attr, sizeof(*attr));
}

static inline pid_t kernel_clone(struct clone_request *request)
{
	return (pid_t)syscall(435, request, sizeof(*request));
}

static inline int kernel_close_range(unsigned first, unsigned last)
{
	return (int)syscall(436, first, last, 0);
}

static inline int kernel_pivot_root(const char *root, const char *old)
{
	return (int)syscall(SYS_pivot_root, root, old);
}

/* struct open_how, and what openat2 must not do on the way. */
struct open_request {
	uint64_t flags, mode, resolve;
};
#define RESOLVE_NO_MAGIC 0x02u
#define RESOLVE_BELOW 0x08u

static inline int kernel_openat2(int directory, const char *path, const struct open_request *request)
{
	return (int)syscall(437, directory, path, request, sizeof(*request));
}

static inline int kernel_pidfd_open(pid_t pid)
{
	return (int)syscall(434, pid, 0);
}

#endif
