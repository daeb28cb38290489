/*
 * System calls without a libc, for x86_64 and aarch64, and the few structures that they take.
 *
 * Always true: a result below zero is a negated errno; nothing here touches the errno of the bash that we live in.
 */
#ifndef ATOLL_SHELL_CALLS_H
#define ATOLL_SHELL_CALLS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
enum {
	NR_READ = 0, NR_CLOSE = 3, NR_MMAP = 9, NR_MUNMAP = 11, NR_RT_SIGPROCMASK = 14, NR_SENDTO = 44, NR_RECVMSG = 47, NR_WAIT4 = 61,
	NR_FCNTL = 72, NR_GETCWD = 79, NR_CHDIR = 80, NR_FCHDIR = 81, NR_GETPID = 39, NR_SETSID = 112, NR_EXIT_GROUP = 231, NR_OPENAT = 257, NR_PPOLL = 271, NR_DUP3 = 292,
};
#elif defined(__aarch64__)
enum {
	NR_GETCWD = 17, NR_DUP3 = 24, NR_FCNTL = 25, NR_CHDIR = 49, NR_FCHDIR = 50, NR_OPENAT = 56, NR_CLOSE = 57, NR_READ = 63, NR_PPOLL = 73, NR_EXIT_GROUP = 94,
	NR_RT_SIGPROCMASK = 135, NR_SETSID = 157, NR_GETPID = 172, NR_SENDTO = 206, NR_RECVMSG = 212, NR_MUNMAP = 215, NR_MMAP = 222, NR_WAIT4 = 260,
};
#else
#error "sessions know x86_64 and aarch64"
#endif

static inline long call6(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return result;
#else
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
	return x0;
#endif
}

#define CALL_1(number, a) call6(number, (long)(a), 0, 0, 0, 0, 0)
#define CALL_2(number, a, b) call6(number, (long)(a), (long)(b), 0, 0, 0, 0)
#define CALL_3(number, a, b, c) call6(number, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define CALL_4(number, a, b, c, d) call6(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

enum {
	E_INTERRUPTED = 4, E_NO_CHILD = 10, E_AGAIN = 11, E_TOO_MANY_FILES = 24,
	FD_DUP_CLOEXEC = 1030, FD_GET_FLAGS = 1, FD_SET_SIGNAL = 10, FD_GET_SIGNAL = 11,
	OPEN_CLOEXEC = 02000000, OPEN_PATH = 010000000,
	SEND_NO_SIGNAL = 0x4000, RECEIVE_CLOEXEC = 0x40000000,
	MESSAGE_CUT = 0x20, DESCRIPTORS_CUT = 0x08,
	LEVEL_SOCKET = 1, PASSED_DESCRIPTORS = 1,
	POLL_NOT_OPEN = 0x20,
	SIGNAL_CHILD = 17, MASK_BLOCK = 0, MASK_SET = 2,
};

#define HERE (-100L)

struct span {
	void *bytes;
	size_t length;
};

struct message {
	void *name;
	uint32_t name_length;
	struct span *spans;
	size_t span_count;
	void *control;
	size_t control_length;
	int flags;
};

struct polled {
	int descriptor;
	short asked, found;
};

struct control_header {
	size_t length;
	int level, type;
};

static inline _Noreturn void leave_now(int status)
{
	for (;;)
		CALL_1(NR_EXIT_GROUP, status);
}

#endif
