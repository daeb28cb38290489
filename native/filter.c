/*
 * The seccomp filter as classic BPF, for x86_64 and aarch64.
 *
 * It is a deny-list: what is refused is what makes namespaces, mounts, kernel objects without an owner in the sandbox,
 * or touches the machine. System calls newer than this file are answered ENOSYS, so that a new way to mount is not
 * allowed by not being known. Programs of another architecture, whose numbers mean other calls, are killed.
 *
 * Always true: a refused call has no effect and answers EPERM, except clone3, whose arguments cannot be inspected and
 * which answers ENOSYS so that libc falls back to clone.
 */
#include "guards.h"

#include "kernel.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "atoll-init knows x86_64 and aarch64"
#endif

/* The same on every architecture, for headers that lack them. */
enum {
	NR_PIDFD_GETFD = 438, NR_IO_URING_SETUP = 425, NR_IO_URING_ENTER = 426, NR_IO_URING_REGISTER = 427,
	NR_OPEN_TREE = 428, NR_MOVE_MOUNT = 429, NR_FSOPEN = 430, NR_FSCONFIG = 431, NR_FSMOUNT = 432, NR_FSPICK = 433,
	NR_CLONE3 = 435, NR_MOUNT_SETATTR = 442, NR_QUOTACTL_FD = 443, NR_OPEN_TREE_ATTR = 467, NR_NEWEST = 469,
};

#define NAMESPACES (NEW_MOUNT | NEW_CGROUP | NEW_UTS | NEW_IPC | NEW_USER | NEW_PID | NEW_NET)
#define TERMINAL_INJECT 0x5412u /* TIOCSTI */
#define TERMINAL_LINUX 0x541Cu  /* TIOCLINUX, which can paste */

static const uint32_t refused[] = {
	/* mounts and roots */
	SYS_mount, SYS_umount2, SYS_pivot_root, NR_OPEN_TREE, NR_MOVE_MOUNT, NR_FSOPEN, NR_FSCONFIG, NR_FSMOUNT, NR_FSPICK,
	NR_MOUNT_SETATTR, NR_OPEN_TREE_ATTR, SYS_quotactl, NR_QUOTACTL_FD, SYS_swapon, SYS_swapoff, SYS_acct, SYS_nfsservctl,
	/* other namespaces and other processes' memory or descriptors */
	SYS_setns, SYS_process_vm_readv, SYS_process_vm_writev, NR_PIDFD_GETFD, SYS_kcmp,
	/* files past their directories' permissions */
	SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_fanotify_init,
	/* kernel objects and kernel code */
	SYS_add_key, SYS_request_key, SYS_keyctl, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, NR_IO_URING_SETUP,
	NR_IO_URING_ENTER, NR_IO_URING_REGISTER, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load,
	SYS_kexec_file_load, SYS_lookup_dcookie, SYS_syslog,
	/* the machine */
	SYS_reboot, SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_vhangup,
#ifdef __x86_64__
	SYS_iopl, SYS_ioperm, SYS_uselib, SYS_ustat, SYS_sysfs, SYS__sysctl, SYS_create_module, SYS_get_kernel_syms,
	SYS_query_module,
#endif
};

static const uint32_t allowed_families[] = { AF_UNSPEC, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET };
static const uint32_t allowed_personalities[] = { 0, 0x0008, 0x20000, 0x20008, 0x40000, 0xffffffff };

/* Where a system call's number leads; every other number is allowed. */
enum target { REFUSE, NO_SUCH_CALL, CLONE_FLAGS, UNSHARE_FLAGS, IOCTL_REQUEST, SOCKET_FAMILY, PERSONALITY, TARGETS };

struct entry {
	uint32_t number;
	enum target target;
};

#define REFUSED_COUNT (sizeof(refused) / sizeof(refused[0]))
#define LEAF 4u

static struct sock_filter program[256];
static unsigned short length;
static uint8_t pending[256]; /* target + 1 of a jump that is not resolved yet */
static struct entry entries[REFUSED_COUNT + TARGETS];
static unsigned entry_count;

static void emit(uint16_t code, uint32_t value, unsigned yes, unsigned no)
{
	if (length == sizeof(program) / sizeof(program[0]) || yes > 255 || no > 255)
		abort();
	program[length++] = (struct sock_filter){ code, (uint8_t)yes, (uint8_t)no, value };
}

static void load(size_t offset)
{
	emit(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void answer(uint32_t action)
{
	emit(BPF_RET | BPF_K, action, 0, 0);
}

static void answer_error(uint32_t error)
{
	answer(SECCOMP_RET_ERRNO | error);
}

/* Low half of an argument; both architectures are little-endian. */
static void load_argument(unsigned index)
{
	load(offsetof(struct seccomp_data, args) + index * 8);
}

static void add(uint32_t number, enum target target)
{
	entries[entry_count++] = (struct entry){ number, target };
}

static int by_number(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;
	return (a->number > b->number) - (a->number < b->number);
}

/*
 * A balanced search over entries[first, end). The kernel runs the filter for every number when it is loaded, to know
 * which calls need no look at all, so a chain of comparisons would cost each command more than its fork.
 */
static void emit_search(unsigned first, unsigned end)
{
	if (end - first <= LEAF) {
		for (unsigned i = first; i < end; i++) {
			pending[length] = (uint8_t)(entries[i].target + 1);
			emit(BPF_JMP | BPF_JEQ | BPF_K, entries[i].number, 0, 0);
		}
		answer(SECCOMP_RET_ALLOW);
		return;
	}
	unsigned middle = first + (end - first) / 2, jump = length;
	emit(BPF_JMP | BPF_JGE | BPF_K, entries[middle].number, 0, 0);
	emit_search(first, middle);
	unsigned distance = length - jump - 1;
	if (distance > 255)
		abort();
	program[jump].jt = (uint8_t)distance;
	emit_search(middle, end);
}

/* From here on is where `target` leads. */
static void land(enum target target)
{
	for (unsigned i = 0; i < length; i++) {
		if (pending[i] != target + 1)
			continue;
		unsigned distance = length - i - 1;
		if (distance > 255)
			abort();
		program[i].jt = (uint8_t)distance;
		pending[i] = 0;
	}
}

static void refuse_flags(enum target target, uint32_t mask)
{
	land(target);
	load_argument(0);
	emit(BPF_JMP | BPF_JSET | BPF_K, mask, 0, 1);
	answer_error(EPERM);
	answer(SECCOMP_RET_ALLOW);
}

static void allow_only(enum target target, const uint32_t *values, unsigned count, uint32_t error)
{
	land(target);
	load_argument(0);
	for (unsigned i = 0; i < count; i++)
		emit(BPF_JMP | BPF_JEQ | BPF_K, values[i], count - i, 0);
	answer_error(error);
	answer(SECCOMP_RET_ALLOW);
}

static void collect_entries(void)
{
	entry_count = 0;
	for (unsigned i = 0; i < REFUSED_COUNT; i++)
		add(refused[i], REFUSE);
	add(NR_CLONE3, NO_SUCH_CALL);
	add(SYS_clone, CLONE_FLAGS);
	add(SYS_unshare, UNSHARE_FLAGS);
	add(SYS_ioctl, IOCTL_REQUEST);
	add(SYS_socket, SOCKET_FAMILY);
	add(SYS_personality, PERSONALITY);
	qsort(entries, entry_count, sizeof(entries[0]), by_number);
}

void filter_prepare(void)
{
	length = 0;
	collect_entries();
	load(offsetof(struct seccomp_data, arch));
	emit(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
	answer(SECCOMP_RET_KILL_PROCESS);
	load(offsetof(struct seccomp_data, nr));
	emit(BPF_JMP | BPF_JGT | BPF_K, NR_NEWEST, 0, 3);
	emit(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 1, 0); /* x32: other numbers for the same calls */
	answer_error(ENOSYS);
	answer_error(EPERM);
	emit_search(0, entry_count);
	refuse_flags(CLONE_FLAGS, NAMESPACES);
	refuse_flags(UNSHARE_FLAGS, NAMESPACES | NEW_TIME);
	land(IOCTL_REQUEST);
	load_argument(1);
	emit(BPF_JMP | BPF_JEQ | BPF_K, TERMINAL_INJECT, 2, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, TERMINAL_LINUX, 1, 0);
	answer(SECCOMP_RET_ALLOW);
	answer_error(EPERM);
	allow_only(SOCKET_FAMILY, allowed_families, sizeof(allowed_families) / sizeof(uint32_t), EAFNOSUPPORT);
	allow_only(PERSONALITY, allowed_personalities, sizeof(allowed_personalities) / sizeof(uint32_t), EPERM);
	land(NO_SUCH_CALL);
	answer_error(ENOSYS);
	land(REFUSE);
	answer_error(EPERM);
}

int filter_load(void)
{
	struct sock_fprog filter = { .len = length, .filter = program };
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}
