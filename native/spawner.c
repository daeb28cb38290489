/*
 * The spawner: reads requests from descriptor 3 and answers each from a child of its own.
 *
 * Always true: the spawner itself makes no namespace, mounts nothing and waits for no single child. Every job has a
 * child, a pipe and a time limit. A job that ends without a RECORD_DONE leaves no init: the spawner kills the pid that
 * the job announced, which cannot have been reused because the spawner is its parent and has not reaped it.
 */
#include "spawner.h"

#include "bytes.h"
#include "create.h"
#include "kernel.h"
#include "network.h"
#include "layer.h"
#include "probe.h"
#include "remove.h"
#include "report.h"
#include "request.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CLIENT 3
#define JOBS_MAX 64
#define CREATE_LIMIT_MS 60000
#define NETWORK_LIMIT_MS 30000
#define OUTPUT_HIGH (1u << 20)

enum { HELLO = 1, HELLO_OK = 2, CREATE = 10, CREATED = 11, FAILED = 12, REMOVE = 13, REMOVED = 14, PROBE = 15, PROBED = 16,
       ROUTER = 17, ROUTER_CLOSE = 18, ATTACH = 19, TOOL = 20, NETWORK_DONE = 21, LAYER = 30, LAYER_DONE = 31 };

struct job {
	pid_t child;     /* 0: reaped */
	pid_t init;      /* announced and not yet confirmed; 0: none */
	bool init_gone;  /* reaped before the job ended */
	int pipe;        /* -1: this slot is free */
	uint8_t type;
	uint32_t request;
	int64_t deadline; /* milliseconds, 0: none */
	const char *why_killed;
};

static struct job jobs[JOBS_MAX];
static struct buffer input, output;
static bool greeted;
static char **spawner_argv;
/* The only place that trees are removed from; NULL: nowhere. A copy, because init wipes the arguments it inherits. */
static const char *own_directory;

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void answer(uint8_t type, uint32_t request, int32_t pid)
{
	struct frame frame = frame_begin(&output, type);
	frame_u32(&frame, request);
	if (type == CREATED)
		frame_u32(&frame, (uint32_t)pid);
	if (!frame_end(&frame))
		_exit(1);
}

static void answer_failed(uint32_t request, int error, const char *step, const char *message)
{
	struct frame frame = frame_begin(&output, FAILED);
	frame_u32(&frame, request);
	frame_u32(&frame, (uint32_t)error);
	frame_u16(&frame, (uint16_t)strlen(step));
	frame_bytes(&frame, step, strlen(step));
	frame_bytes(&frame, message, strlen(message));
	if (!frame_end(&frame))
		_exit(1);
}

static void answer_layer(uint32_t request, const char *result)
{
	struct frame frame = frame_begin(&output, LAYER_DONE);
	frame_u32(&frame, request);
	frame_bytes(&frame, result, strlen(result));
	if (!frame_end(&frame))
		_exit(1);
}

static struct job *free_job(void)
{
	for (size_t i = 0; i < JOBS_MAX; i++)
		if (jobs[i].pipe < 0 && jobs[i].child == 0)
			return &jobs[i];
	return NULL;
}

/* Forks; returns true in the child, whose only way on is _exit. */
static bool start_job(struct job *job, uint8_t type, uint32_t request, int *report)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
		answer_failed(request, errno, "pipe", "the spawner has no descriptor left");
		return false;
	}
	pid_t child = fork();
	if (child < 0) {
		answer_failed(request, errno, "fork", "the machine refuses another process");
		close(ends[0]);
		close(ends[1]);
		return false;
	}
	if (child == 0) {
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		/* 0 to 2 stay for now; the report pipe becomes 3 and nothing else of the spawner survives. */
		if (dup3(ends[1], CLIENT, O_CLOEXEC) < 0)
			_exit(1);
		fcntl(CLIENT, F_SETFL, 0);
		kernel_close_range(CLIENT + 1, ~0u);
		*report = CLIENT;
		return true;
	}
	close(ends[1]);
	*job = (struct job){ .child = child, .pipe = ends[0], .type = type, .request = request };
	if (type == CREATE || type >= ROUTER)
		job->deadline = now_ms() + (type == CREATE ? CREATE_LIMIT_MS : NETWORK_LIMIT_MS);
	return false;
}

/* Child only: text of a request as a path or name. */
static char *body_text(const uint8_t *body, size_t length)
{
	struct field field = { .length = (uint32_t)length, .bytes = body };
	return field_text(&field);
}

/* Strictly below our own directory, spelt without detours. */
static bool is_own(const char *path)
{
	size_t length = own_directory == NULL ? 0 : strlen(own_directory);
	if (length == 0 || strlen(path) >= PATH_MAX || strncmp(path, own_directory, length) != 0 || path[length] != '/')
		return false;
	for (const char *name = path + length; *name != 0; ) {
		size_t size = strcspn(++name, "/");
		if (size == 0 || (size == 1 && name[0] == '.') || (size == 2 && name[0] == '.' && name[1] == '.'))
			return false;
		name += size;
	}
	return true;
}

/* Child only. */
static int serve_text(uint8_t type, const char *text, int report)
{
	switch (type) {
	case REMOVE: return remove_tree(text, report);
	case PROBE: return probe_guard(text, report);
	case ROUTER: return network_serve_router(text, report);
	default: return network_serve_close(text, report);
	}
}

/* What says that a request of this type is done. */
static uint8_t done_type(uint8_t type)
{
	return type == CREATE ? CREATED : type == REMOVE ? REMOVED : type == PROBE ? PROBED : NETWORK_DONE;
}

/* false: malformed. */
static bool handle_layer(struct job *job, uint32_t number, const uint8_t *body, size_t length)
{
	struct layer_request request;
	int report;
	pid_t spawner = getpid();
	bool parsed = layer_parse(body, length, &request);
	const char *why = parsed ? layer_refusal(&request, is_own) : NULL;
	if (why == NULL && own_directory == NULL)
		why = "the spawner was started without a directory of its own";
	if (parsed && why != NULL)
		answer_failed(number, EPERM, "request", why);
	else if (parsed && start_job(job, LAYER, number, &report))
		_exit(layer_run(&request, own_directory, spawner, report));
	layer_free(&request);
	return parsed;
}

/* false: malformed. */
static bool handle(uint8_t type, const uint8_t *body, size_t length)
{
	if (type == HELLO) {
		if (greeted || length != 2)
			return false;
		struct frame frame = frame_begin(&output, HELLO_OK);
		frame_u16(&frame, 1);
		frame_end(&frame);
		greeted = true;
		return get_u16(body) == 1;
	}
	if (!greeted || length < 4 ||
	    (type != CREATE && type != REMOVE && type != PROBE && type != LAYER && !(type >= ROUTER && type <= TOOL)))
		return false;
	uint32_t number = get_u32(body);
	struct job *job = free_job();
	int report;
	body += 4;
	length -= 4;
	if (type == CREATE) {
		struct create_request request;
		const char *why;
		int result = request_parse(body, length, &request, &why);
		if (result > 0)
			answer_failed(number, result, "request", why != NULL ? why : "the request is not possible");
		else if (result == 0 && start_job(job, type, number, &report))
			create_sandbox(&request, report, spawner_argv);
		request_free(&request);
		return result >= 0;
	}
	if (type == ATTACH || type == TOOL) {
		if (start_job(job, type, number, &report))
			_exit(type == ATTACH ? network_serve_attach(body, length, report) : network_serve_tool(body, length, report));
		return true;
	}
	if (type == LAYER)
		return handle_layer(job, number, body, length);
	char *text = body_text(body, length);
	if (text == NULL || text[0] == 0) {
		free(text);
		return false;
	}
	if (type == REMOVE && !is_own(text))
		answer_failed(number, EPERM, "request", "only what lies below the spawner's own directory can be removed");
	else if (start_job(job, type, number, &report))
		_exit(serve_text(type, text, report));
	free(text);
	return true;
}

static void end_job(struct job *job, const struct record_report *record)
{
	if (record != NULL && record->kind == RECORD_DONE && job->type == LAYER) {
		answer_layer(job->request, record->message);
	} else if (record != NULL && record->kind == RECORD_DONE) {
		answer(done_type(job->type), job->request, job->init);
	} else {
		if (job->init > 0 && !job->init_gone)
			kill(job->init, SIGKILL);
		if (record != NULL)
			answer_failed(job->request, record->value, record->step, record->message);
		else if (job->why_killed != NULL)
			answer_failed(job->request, ETIMEDOUT, "time limit", job->why_killed);
		else
			answer_failed(job->request, ECHILD, "child", "the process that did this work died");
	}
	close(job->pipe);
	job->pipe = -1;
	job->init = 0;
}

static void read_job(struct job *job)
{
	struct record_report record;
	for (;;) {
		int result = report_receive(job->pipe, &record);
		if (result < 0 && errno == EAGAIN)
			return;
		if (result <= 0) {
			end_job(job, NULL);
			return;
		}
		if (record.kind == RECORD_PID) {
			job->init = record.value;
			continue;
		}
		end_job(job, &record);
		return;
	}
}

static void reap(int signals)
{
	struct signalfd_siginfo drop[16];
	while (read(signals, drop, sizeof(drop)) > 0)
		;
	pid_t pid;
	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		for (size_t i = 0; i < JOBS_MAX; i++) {
			/* The announcement may still be in the pipe; it must be known before its pid can be reused. */
			if (jobs[i].pipe >= 0)
				read_job(&jobs[i]);
			if (jobs[i].child == pid)
				jobs[i].child = 0;
			if (jobs[i].init == pid)
				jobs[i].init_gone = true;
		}
	}
}

static int expire(void)
{
	int64_t now = now_ms(), next = -1;
	for (size_t i = 0; i < JOBS_MAX; i++) {
		struct job *job = &jobs[i];
		if (job->pipe < 0 || job->deadline == 0)
			continue;
		if (job->deadline <= now) {
			job->deadline = 0;
			job->why_killed = job->type == CREATE ? "the sandbox was not ready in time" : "it was not done in time";
			if (job->child > 0)
				kill(job->child, SIGKILL);
			if (job->init > 0 && !job->init_gone)
				kill(job->init, SIGKILL);
		} else if (next < 0 || job->deadline - now < next) {
			next = job->deadline - now;
		}
	}
	return (int)next;
}

/* false: the client is gone or sent something malformed. */
static bool read_client(void)
{
	uint8_t *room = buffer_reserve(&input, 65536);
	if (room == NULL)
		return false;
	ssize_t count = read(CLIENT, room, 65536);
	if (count <= 0) {
		bool again = count < 0 && (errno == EAGAIN || errno == EINTR);
		buffer_added(&input, 0);
		return again;
	}
	buffer_added(&input, (size_t)count);
	return true;
}

static bool handle_input(void)
{
	uint8_t type;
	const uint8_t *body;
	size_t length;
	while (buffer_length(&input) > 0 && free_job() != NULL && buffer_length(&output) < OUTPUT_HIGH) {
		int result = frame_parse(input.data + input.begin, buffer_length(&input), &type, &body, &length);
		if (result < 0)
			return false;
		if (result == 0)
			break;
		if (!handle(type, body, length))
			return false;
		buffer_consume(&input, length + FRAME_HEADER);
	}
	return true;
}

static bool flush_output(void)
{
	while (buffer_length(&output) > 0) {
		ssize_t count = write(CLIENT, output.data + output.begin, buffer_length(&output));
		if (count < 0)
			return errno == EAGAIN || errno == EINTR;
		buffer_consume(&output, (size_t)count);
	}
	return true;
}

int spawner_main(int argc, char **argv)
{
	spawner_argv = argv;
	own_directory = argc == 3 && argv[2][0] == '/' ? strdup(argv[2]) : NULL;
	prctl(PR_SET_NAME, "atoll-spawner");
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	int signals = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
	int flags = fcntl(CLIENT, F_GETFL);
	if (signals < 0 || flags < 0 || fcntl(CLIENT, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(CLIENT, F_SETFD, FD_CLOEXEC) < 0)
		return 2;
	for (size_t i = 0; i < JOBS_MAX; i++)
		jobs[i].pipe = -1;

	for (;;) {
		struct pollfd polled[JOBS_MAX + 2];
		nfds_t count = 2;
		bool room = free_job() != NULL && buffer_length(&output) < OUTPUT_HIGH;
		polled[0] = (struct pollfd){ .fd = CLIENT, .events = (short)((room ? POLLIN : 0) | (buffer_length(&output) > 0 ? POLLOUT : 0)) };
		polled[1] = (struct pollfd){ .fd = signals, .events = POLLIN };
		for (size_t i = 0; i < JOBS_MAX; i++)
			if (jobs[i].pipe >= 0)
				polled[count++] = (struct pollfd){ .fd = jobs[i].pipe, .events = POLLIN };
		if (poll(polled, count, expire()) < 0 && errno != EINTR)
			return 2;
		for (size_t i = 0; i < JOBS_MAX; i++)
			if (jobs[i].pipe >= 0)
				read_job(&jobs[i]);
		if ((polled[1].revents & POLLIN) != 0)
			reap(signals);
		if ((polled[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !read_client())
			return 0;
		if (!handle_input() || !flush_output())
			return 1;
	}
}
