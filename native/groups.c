/* See groups.h. */
#include "groups.h"

#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEPT 64

struct group {
	int directory, events; /* 0: not open; descriptors 0 to 3 are never ours */
	/*
	 * Killed through cgroup.kill. Linux 6.14 to at least 6.18 kills whatever is cloned into such a group from another
	 * one, however much later (it compares the kill counters of both), so the directory is made anew.
	 */
	bool killed;
};

static struct group groups[SLOTS];

static void name_of(int slot, char *name, size_t size)
{
	snprintf(name, size, "%d", slot);
}

static void remove_group(int slot)
{
	char name[16];
	if (groups[slot].directory <= 0)
		return;
	close(groups[slot].events);
	close(groups[slot].directory);
	groups[slot] = (struct group){ 0 };
	name_of(slot, name, sizeof(name));
	unlinkat(sandbox.run_group, name, AT_REMOVEDIR);
}

int group_open(int slot)
{
	struct group *group = &groups[slot];
	char name[16];
	if (group->killed)
		remove_group(slot);
	if (group->directory > 0)
		return group->directory;
	name_of(slot, name, sizeof(name));
	if (mkdirat(sandbox.run_group, name, 0755) < 0 && errno != EEXIST)
		return -1;
	int directory = openat(sandbox.run_group, name, O_DIRECTORY | O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int events = directory < 0 ? -1 : openat(directory, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (events < 0) {
		if (directory >= 0)
			close(directory);
		return -1;
	}
	*group = (struct group){ directory, events, false };
	return directory;
}

static bool read_populated(int events)
{
	char text[256];
	ssize_t count = pread(events, text, sizeof(text) - 1, 0);
	if (count < 0)
		return errno != ENODEV;
	text[count] = 0;
	return strstr(text, "populated 0") == NULL;
}

bool group_populated(int slot)
{
	return read_populated(groups[slot].events);
}

int group_events(int slot)
{
	return groups[slot].events;
}

static void write_kill(int directory)
{
	int file = openat(directory, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	if (file < 0)
		return;
	if (write(file, "1", 1) < 0) {
		/* ENODEV: the group is gone, and everything in it. */
	}
	close(file);
}

void group_kill(int slot)
{
	groups[slot].killed = true;
	write_kill(groups[slot].directory);
}

void groups_kill_all(void)
{
	for (int slot = 0; slot < SLOTS; slot++)
		groups[slot].killed = groups[slot].directory > 0;
	write_kill(sandbox.run_group);
}

/* Calls `visit` with each member until it says true: whether it did. */
static bool any_member(int slot, bool (*visit)(int pid, int context), int context)
{
	char text[4096 + 1];
	size_t held = 0;
	bool found = false;
	int file = openat(groups[slot].directory, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	while (file >= 0 && !found) {
		ssize_t count = read(file, text + held, sizeof(text) - 1 - held);
		if (count <= 0)
			break;
		held += (size_t)count;
		text[held] = 0;
		char *line = text, *newline;
		while (!found && (newline = strchr(line, '\n')) != NULL) {
			found = visit((int)strtol(line, NULL, 10), context);
			line = newline + 1;
		}
		held -= (size_t)(line - text);
		memmove(text, line, held);
	}
	if (file >= 0)
		close(file);
	return found;
}

static bool signal_member(int pid, int number)
{
	if (pid > 1)
		kill(pid, number);
	return false;
}

/* A fork in between may be missed; what must not be missed is killed instead. */
void group_signal(int slot, int number)
{
	if (number == SIGKILL)
		group_kill(slot);
	else
		any_member(slot, signal_member, number);
}

static bool is_member(int pid, int wanted)
{
	return pid == wanted;
}

bool group_has(int slot, int pid)
{
	return any_member(slot, is_member, pid);
}

bool group_take(int slot, int pid)
{
	char text[16];
	int file = openat(groups[slot].directory, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	int length = snprintf(text, sizeof(text), "%d", pid);
	bool taken = file >= 0 && write(file, text, (size_t)length) == length;
	if (file >= 0)
		close(file);
	return taken;
}

void group_release(int slot)
{
	if (slot >= KEPT || groups[slot].killed)
		remove_group(slot);
}

bool groups_populated(void)
{
	int events = openat(sandbox.run_group, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (events < 0)
		return false;
	bool populated = read_populated(events);
	close(events);
	return populated;
}

void groups_remove_all(void)
{
	for (int slot = 0; slot < SLOTS; slot++)
		remove_group(slot);
}
