/* See pace.h. */
#include "pace.h"

#include "init.h"
#include "loop.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static struct source changes = { .fd = -1 };
static bool still;
static uint64_t still_since, still_before; /* still_before: of all earlier times together */

static bool read_still(void)
{
	char text[256];
	ssize_t count = pread(changes.fd, text, sizeof(text) - 1, 0);
	if (count < 0)
		return false;
	text[count] = 0;
	return strstr(text, "frozen 1") != NULL;
}

static void changes_ready(struct source *source, uint32_t events)
{
	(void)source, (void)events;
	bool now_still = read_still();
	if (now_still == still)
		return;
	if (now_still) {
		still_since = boot_ms();
	} else {
		still_before += boot_ms() - still_since;
		loop_alarm(boot_ms());
	}
	still = now_still;
}

bool pace_open(void)
{
	changes = (struct source){ .fd = openat(sandbox.run_group, "cgroup.events", O_RDONLY | O_CLOEXEC), .ready = changes_ready };
	if (changes.fd < 0)
		return false;
	still = read_still();
	still_since = boot_ms();
	return source_watch(&changes, EPOLLPRI);
}

uint64_t commands_ms(void)
{
	return (still ? still_since : boot_ms()) - still_before;
}

void commands_alarm(uint64_t at)
{
	if (at != 0 && !still)
		loop_alarm(at + still_before);
}
