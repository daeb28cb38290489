/* See journal-spare.h. */
#include "journal-spare.h"

#include "init.h"
#include "journal.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPARE ".spare"
#define SPARE_SEGMENT SPARE "/0000000000000000"

static int segment = -1;
static uint64_t due;

void spare_forget(void)
{
	unlinkat(sandbox.journals, SPARE_SEGMENT, 0);
	unlinkat(sandbox.journals, SPARE, AT_REMOVEDIR);
}

int spare_take(const char *name)
{
	int taken = segment;
	segment = -1;
	if (taken < 0 || renameat2(sandbox.journals, SPARE, sandbox.journals, name, RENAME_NOREPLACE) == 0)
		return taken;
	close(taken);
	spare_forget();
	return -1;
}

static void make(void)
{
	spare_forget();
	if (mkdirat(sandbox.journals, SPARE, 0700) < 0)
		return;
	segment = openat(sandbox.journals, SPARE_SEGMENT, JOURNAL_SEGMENT_FLAGS, 0600);
	if (segment < 0)
		spare_forget();
}

void spare_want(uint64_t at)
{
	if (segment >= 0 || (due != 0 && due <= at))
		return;
	due = at;
	loop_alarm(due);
}

void spare_alarm(uint64_t now)
{
	if (due == 0)
		return;
	if (now < due) {
		loop_alarm(due);
		return;
	}
	due = 0;
	if (segment < 0)
		make();
}
