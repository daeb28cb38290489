/* Attacks on another process: its memory, its descriptors, its life. */
#include "attack.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

static pid_t target(int count, char **arguments)
{
	return count > 0 ? atoi(arguments[0]) : 1;
}

/* Names of descriptors are only numbers; what counts is whether one of them can be followed. */
static long look_into(const char *path)
{
	char name[400], buffer[256];
	struct dirent *entry;
	DIR *directory = opendir(path);
	long result = -1;
	if (directory == NULL)
		return -1;
	while (result < 0 && (errno = 0, entry = readdir(directory)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		int file = strstr(path, "fdinfo") != NULL ? open(name, O_RDONLY) : 0;
		result = file > 0 ? read(file, buffer, sizeof(buffer)) : file < 0 ? -1 : readlink(name, buffer, sizeof(buffer));
		if (result < 0)
			break;
	}
	int error = errno;
	closedir(directory);
	errno = error;
	return result;
}

/* look PID: which files of /proc/PID can be read, and which links followed. */
static void look(int count, char **arguments)
{
	static const char *const files[] = { "mem", "environ", "maps", "auxv", "stack", "syscall", "io", "pagemap" };
	static const char *const links[] = { "exe", "cwd", "root", "ns/mnt", "ns/user" };
	static const char *const directories[] = { "fd", "map_files", "fdinfo" };
	char path[64], buffer[4096];
	pid_t pid = target(count, arguments);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, files[i]);
		int file = open(path, O_RDONLY);
		/* An address that is mapped is found only by who can read maps: for `mem` opening counts. */
		said(files[i], file < 0 || strcmp(files[i], "mem") == 0 ? file : read(file, buffer, 64));
	}
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, links[i]);
		said(links[i], readlink(path, buffer, sizeof(buffer)));
	}
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, directories[i]);
		said(directories[i], look_into(path));
	}
}

/* Any mapped address of a process, or 0. */
static uintptr_t some_address(pid_t pid)
{
	char path[64];
	unsigned long address = 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	FILE *maps = fopen(path, "r");
	if (maps != NULL) {
		if (fscanf(maps, "%lx", &address) != 1)
			address = 0;
		fclose(maps);
	}
	return address;
}

/* enter PID: attaches, reads memory, takes a descriptor. */
static void enter(int count, char **arguments)
{
	pid_t pid = target(count, arguments);
	char byte;
	uintptr_t address = some_address(pid);
	struct iovec here = { &byte, 1 }, there = { (void *)(address != 0 ? address : 0x400000), 1 };
	said("process_vm_readv", syscall(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0));
	long handle = syscall(434, pid, 0);
	said("pidfd_getfd", syscall(438, handle, 0, 0));
	long seized = ptrace(PTRACE_SEIZE, pid, 0, 0);
	said("PTRACE_SEIZE", seized);
	if (seized == 0) {
		ptrace(PTRACE_INTERRUPT, pid, 0, 0);
		waitpid(pid, NULL, __WALL);
		ptrace(PTRACE_DETACH, pid, 0, 0);
	}
	long attached = ptrace(PTRACE_ATTACH, pid, 0, 0);
	said("PTRACE_ATTACH", attached);
	if (attached == 0) {
		waitpid(pid, NULL, __WALL);
		ptrace(PTRACE_DETACH, pid, 0, 0);
	}
}

/* write-memory PID: opens its memory for writing. */
static void write_memory(int count, char **arguments)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/mem", target(count, arguments));
	said("mem", open(path, O_RDWR));
}

/* signals PID SIGNAL…: that each can be sent says nothing; what matters is what becomes of the receiver. */
static void send_signals(int count, char **arguments)
{
	for (int i = 1; i < count; i++)
		said(arguments[i], kill(target(count, arguments), atoi(arguments[i])));
}

/* descriptors: the ones this program was born with. */
static void descriptors(int count, char **arguments)
{
	(void)count, (void)arguments;
	for (int i = 0; i < 65536; i++)
		if (fcntl(i, F_GETFD) >= 0)
			printf("%d\n", i);
}

/* The process whose program is called NAME, its program opened through /proc, or -1 as long as there is none. */
static int open_program(const char *name, pid_t *pid)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	char path[300], program[4096];
	int file = -1;
	while (file < 0 && (entry = readdir(processes)) != NULL) {
		if ((*pid = atoi(entry->d_name)) <= 1)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/exe", *pid);
		ssize_t length = readlink(path, program, sizeof(program) - 1);
		if (length < 0)
			continue;
		program[length] = 0;
		if (strstr(program, name) != NULL)
			file = open(path, O_RDONLY);
	}
	closedir(processes);
	return file;
}

/* overwrite NAME: catches a process that runs the program NAME, ends it, and opens the program's file for writing. */
static void overwrite(int count, char **arguments)
{
	char path[64];
	pid_t pid;
	int program, writable = -1;
	if (count < 1)
		exit(2);
	while ((program = open_program(arguments[0], &pid)) < 0)
		;
	said("read", program);
	kill(pid, SIGKILL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", program);
	for (int tries = 0; tries < 1000 && writable < 0; tries++) {
		writable = open(path, O_WRONLY);
		if (writable < 0 && (errno != ETXTBSY || usleep(1000) < 0))
			break;
	}
	said("write", writable);
}

const struct attack process_attacks[] = {
	{ "look", look }, { "enter", enter }, { "write-memory", write_memory }, { "signals", send_signals }, { "descriptors", descriptors },
	{ "overwrite", overwrite }, { NULL, NULL },
};
