/* See loop.h. */
#include "loop.h"

#include <errno.h>
#include <stddef.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64

static int poller = -1;
static struct source timer = { .fd = -1 };
static uint64_t next_alarm;
static bool alarm_due;

uint64_t boot_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void timer_ready(struct source *source, uint32_t events)
{
	uint64_t count;
	(void)events;
	if (read(source->fd, &count, sizeof(count)) > 0)
		alarm_due = true;
}

bool loop_open(void)
{
	poller = epoll_create1(EPOLL_CLOEXEC);
	timer.fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	timer.ready = timer_ready;
	return poller >= 0 && timer.fd >= 0 && source_watch(&timer, EPOLLIN);
}

void loop_alarm(uint64_t at)
{
	if (at == 0 || (next_alarm != 0 && next_alarm <= at))
		return;
	next_alarm = at;
	struct itimerspec when = { .it_value = { .tv_sec = (time_t)(at / 1000), .tv_nsec = (long)(at % 1000) * 1000000 } };
	/* Zero would disarm; a time in the past fires at once. */
	if (when.it_value.tv_sec == 0 && when.it_value.tv_nsec == 0)
		when.it_value.tv_nsec = 1;
	timerfd_settime(timer.fd, TFD_TIMER_ABSTIME, &when, NULL);
}

_Noreturn void loop_run(void (*round)(void), void (*alarm)(uint64_t now))
{
	struct epoll_event events[BATCH];
	for (;;) {
		int count = epoll_wait(poller, events, BATCH, -1);
		for (int i = 0; i < count; i++) {
			struct source *source = events[i].data.ptr;
			/* An earlier event of this batch may have closed it; its memory stays until the round. */
			if (source->fd >= 0 && source->watched)
				source->ready(source, events[i].events);
		}
		if (alarm_due) {
			alarm_due = false;
			next_alarm = 0;
			alarm(boot_ms());
		}
		round();
	}
}

bool source_watch(struct source *source, uint32_t interest)
{
	struct epoll_event event = { .events = interest, .data.ptr = source };
	if (source->watched && source->interest == interest)
		return true;
	if (epoll_ctl(poller, source->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, source->fd, &event) < 0)
		return false;
	source->watched = true;
	source->interest = interest;
	return true;
}

void source_unwatch(struct source *source)
{
	if (source->watched)
		epoll_ctl(poller, EPOLL_CTL_DEL, source->fd, NULL);
	source->watched = false;
}

void source_close(struct source *source)
{
	if (source->fd < 0)
		return;
	source_unwatch(source);
	close(source->fd);
	source->fd = -1;
}
