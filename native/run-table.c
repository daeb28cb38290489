/* The table of runs: which slot and which process is whose; see runs.h. */
#include "runs.h"

#include "groups.h"
#include "init.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct run *runs[SLOTS];
static atomic_int pids[SLOTS]; /* written by the kernel at fork, cleared when reaped */
static int used_slots;         /* every slot at or above is free */
static uint32_t live, workers;

int runs_take_slot(struct run *run)
{
	for (int slot = 0; slot < SLOTS; slot++) {
		if (runs[slot] != NULL)
			continue;
		runs[slot] = run;
		run->slot = slot;
		live++;
		workers += run->worker;
		if (slot >= used_slots)
			used_slots = slot + 1;
		return slot;
	}
	return -1;
}

void runs_leave_slot(struct run *run)
{
	atomic_store(&pids[run->slot], 0);
	runs[run->slot] = NULL;
	live--;
	workers -= run->worker;
	while (used_slots > 0 && runs[used_slots - 1] == NULL)
		used_slots--;
}

struct run *runs_next(const struct run *run)
{
	for (int slot = run == NULL ? 0 : run->slot + 1; slot < used_slots; slot++)
		if (runs[slot] != NULL)
			return runs[slot];
	return NULL;
}

static int slot_of_pid(int pid)
{
	int slot = 0;
	while (slot < used_slots && atomic_load_explicit(&pids[slot], memory_order_relaxed) != pid)
		slot++;
	return slot < used_slots ? slot : -1;
}

struct run *runs_take_pid(int pid)
{
	int slot = slot_of_pid(pid);
	if (slot < 0)
		return NULL;
	atomic_store(&pids[slot], 0);
	return runs[slot];
}

bool runs_have_pid(int pid)
{
	return slot_of_pid(pid) >= 0;
}

uint32_t runs_of_commands(void)
{
	return live - workers;
}

atomic_int *runs_pid_of(int slot)
{
	return &pids[slot];
}

uint32_t runs_live(void)
{
	return live;
}

struct run *run_of(const struct record *record)
{
	return record->slot >= 0 ? runs[record->slot] : NULL;
}

uint64_t runs_oom_kills(void)
{
	char text[512];
	if (sandbox.memory_events < 0)
		return 0;
	ssize_t count = pread(sandbox.memory_events, text, sizeof(text) - 1, 0);
	if (count <= 0)
		return 0;
	text[count] = 0;
	for (char *line = text; line != NULL; line = strchr(line, '\n')) {
		if (*line == '\n')
			line++;
		if (strncmp(line, "oom_kill ", 9) == 0)
			return strtoull(line + 9, NULL, 10);
	}
	return 0;
}
