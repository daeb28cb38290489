/* See connections.h. */
#include "connections.h"

#include "control.h"
#include "init.h"
#include "records.h"
#include "relay.h"
#include "runs.h"
#include "workers.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO = 1, HELLO_OK = 2, HELLO_NO = 3, EVENT = 33, REFUSED = 42, STDIN = 47 };

#define VERSION 1
#define INPUT_TOTAL_MAX (64u << 20)
#define OUTPUT_MAX (8u << 20)
#define TALKS_ON_MS 2000u

static struct source listening = { .fd = -1 };
static struct connection *connections, *touched, *dead;
static unsigned connection_count;
static size_t input_total;
static uint8_t scratch[65536];

static void connection_ready(struct source *source, uint32_t events);

static void accept_ready(struct source *source, uint32_t events)
{
	(void)events;
	for (;;) {
		int fd = accept4(source->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			/* Out of descriptors: a level-triggered listener would spin. Look again when a connection ends. */
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
				source_unwatch(source);
			return;
		}
		struct connection *connection = connection_count < CONNECTIONS_MAX ? calloc(1, sizeof(*connection)) : NULL;
		if (connection == NULL) {
			close(fd);
			continue;
		}
		connection->source = (struct source){ .fd = fd, .ready = connection_ready };
		if (!source_watch(&connection->source, EPOLLIN)) {
			close(fd);
			free(connection);
			continue;
		}
		connection->next = connections;
		if (connections != NULL)
			connections->previous = connection;
		connections = connection;
		connection_count++;
	}
}

bool connections_listen(int listener)
{
	listening.fd = listener;
	listening.ready = accept_ready;
	return source_watch(&listening, EPOLLIN);
}

void connection_touch(struct connection *connection)
{
	if (connection->touched)
		return;
	connection->touched = true;
	connection->next_touched = touched;
	touched = connection;
}

bool connection_flush(struct connection *connection)
{
	size_t length = buffer_length(&connection->out);
	if (length == 0)
		return true;
	if (send(connection->source.fd, connection->out.data + connection->out.begin, length, MSG_NOSIGNAL) != (ssize_t)length)
		return false;
	buffer_consume(&connection->out, length);
	return true;
}

bool connection_has_room(const struct connection *connection)
{
	return buffer_length(&connection->out) < OUTPUT_ROOM;
}

void connection_finish(struct connection *connection)
{
	connection->closing = true;
	connection_touch(connection);
}

void connection_half_close(struct connection *connection)
{
	connection->half_closing = true;
	connection_touch(connection);
}

void connection_end(struct connection *connection)
{
	if (connection->source.fd < 0)
		return;
	source_close(&connection->source);
	if (connection->run != NULL)
		run_detach(connection->run);
	connection->run = NULL;
	if (connection->waits)
		runs_leave(connection);
	if (connection->relay != NULL)
		relay_end(connection->relay);
	connection->buried = connection->relay;
	connection->relay = NULL;
	input_total -= buffer_length(&connection->in);
	buffer_free(&connection->in);
	buffer_free(&connection->out);
	if (connection->previous != NULL)
		connection->previous->next = connection->next;
	else
		connections = connection->next;
	if (connection->next != NULL)
		connection->next->previous = connection->previous;
	connection_count--;
	connection->next_dead = dead;
	dead = connection;
	if (!listening.watched && listening.fd >= 0)
		source_watch(&listening, EPOLLIN);
}

void connection_refuse(struct connection *connection, uint16_t code, uint32_t error, const char *text)
{
	struct frame frame = frame_begin(&connection->out, REFUSED);
	frame_u16(&frame, code);
	frame_u32(&frame, error);
	frame_bytes(&frame, text, strlen(text));
	frame_end(&frame);
	connection_finish(connection);
}

static bool greet(struct connection *connection, uint8_t type, const uint8_t *body, size_t length)
{
	if (type != HELLO || length != 3)
		return false;
	bool known = get_u16(body) == VERSION && body[2] >= KIND_CONTROL && body[2] <= KIND_FILES;
	struct frame frame = frame_begin(&connection->out, known ? HELLO_OK : HELLO_NO);
	frame_u16(&frame, VERSION);
	if (known)
		frame_u64(&frame, sandbox.generation);
	if (!frame_end(&frame))
		return false;
	connection->kind = known ? (enum connection_kind)body[2] : KIND_UNKNOWN;
	if (!known)
		connection_finish(connection);
	connection_touch(connection);
	return true;
}

/* false: malformed. */
static bool dispatch(struct connection *connection, uint8_t type, const uint8_t *body, size_t length)
{
	switch (connection->kind) {
	case KIND_CONTROL: return control_frame(connection, type, body, length);
	case KIND_RUN: return run_frame(connection, type, body, length);
	case KIND_RELAY: return relay_frame(connection, type, body, length);
	case KIND_FILES: return worker_frame(connection, type, body, length);
	default: return greet(connection, type, body, length);
	}
}

/* Takes what it can of `bytes`: the count, or -1 when malformed. */
static ssize_t take(struct connection *connection, const uint8_t *bytes, size_t count)
{
	size_t used = 0;
	while (!connection->closing && connection->source.fd >= 0) {
		const uint8_t *at = bytes + used;
		size_t left = count - used;
		if (connection->raw) {
			size_t taken = relay_input(connection->relay, at, left);
			return (ssize_t)(used + taken);
		}
		if (connection->stdin_left > 0) {
			size_t offered = left < connection->stdin_left ? left : connection->stdin_left;
			size_t taken = run_input(connection->run, at, offered);
			connection->stdin_left -= (uint32_t)taken;
			used += taken;
			if (connection->stdin_left > 0)
				break;
			continue;
		}
		/* Answers that nobody reads hold further questions back. */
		if (connection->kind != KIND_RUN && !connection_has_room(connection))
			break;
		if (connection->kind == KIND_RUN && connection->run != NULL && left >= FRAME_HEADER && at[4] == STDIN) {
			uint32_t length = get_u32(at);
			if (length < 1 || length > FRAME_LENGTH_MAX)
				return -1;
			connection->stdin_left = length - 1;
			used += FRAME_HEADER;
			continue;
		}
		uint8_t type;
		const uint8_t *body;
		size_t length;
		int result = frame_parse(at, left, &type, &body, &length);
		if (result < 0)
			return -1;
		if (result == 0)
			break;
		if (!dispatch(connection, type, body, length))
			return -1;
		used += length + FRAME_HEADER;
		if (connection->handed) {
			worker_begin(connection, bytes + used, count - used);
			return (ssize_t)count;
		}
	}
	return (ssize_t)used;
}

/* Whether more input would be of use now. */
static bool wants_input(const struct connection *connection)
{
	if (connection->draining)
		return true;
	if (connection->closing)
		return false;
	if (connection->raw)
		return relay_wants_input(connection->relay);
	if (connection->stdin_left > 0)
		return run_wants_input(connection->run);
	return connection->kind == KIND_RUN || connection_has_room(connection);
}

static void update_interest(struct connection *connection)
{
	if (connection->source.fd < 0)
		return;
	if (connection->handed) {
		if (!source_watch(&connection->source, EPOLLRDHUP))
			connection_end(connection);
		return;
	}
	uint32_t interest = (wants_input(connection) ? (uint32_t)EPOLLIN : 0) | (buffer_length(&connection->out) > 0 ? (uint32_t)EPOLLOUT : 0);
	if (!source_watch(&connection->source, interest))
		connection_end(connection);
}

static void consume_held(struct connection *connection)
{
	if (buffer_length(&connection->in) > 0) {
		ssize_t used = take(connection, connection->in.data + connection->in.begin, buffer_length(&connection->in));
		if (connection->source.fd < 0)
			return;
		if (used < 0) {
			connection_end(connection);
			return;
		}
		input_total -= (size_t)used;
		buffer_consume(&connection->in, (size_t)used);
	}
	update_interest(connection);
}

void connection_resume(struct connection *connection)
{
	if (connection->source.fd >= 0)
		consume_held(connection);
}

static void hold(struct connection *connection, const uint8_t *bytes, size_t count)
{
	if (input_total + count > INPUT_TOTAL_MAX || !buffer_append(&connection->in, bytes, count)) {
		connection_end(connection);
		return;
	}
	input_total += count;
}

static bool talks_on(const struct connection *connection)
{
	int unread = 0;
	return connection->draining && connection->raw && boot_ms() - connection->draining_since >= TALKS_ON_MS &&
	       ioctl(connection->source.fd, SIOCOUTQ, &unread) == 0 && unread == 0;
}

static void read_input(struct connection *connection)
{
	if (talks_on(connection)) {
		connection_end(connection);
		return;
	}
	ssize_t count = read(connection->source.fd, scratch, sizeof(scratch));
	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (count <= 0) {
		if (count == 0 && connection->raw && relay_input_ended(connection->relay))
			update_interest(connection);
		else
			connection_end(connection);
		return;
	}
	if (connection->draining)
		return;
	if (buffer_length(&connection->in) > 0) {
		hold(connection, scratch, (size_t)count);
		if (connection->source.fd >= 0)
			consume_held(connection);
		return;
	}
	ssize_t used = take(connection, scratch, (size_t)count);
	if (connection->source.fd < 0)
		return;
	if (used < 0) {
		connection_end(connection);
		return;
	}
	if (used < count && !connection->closing)
		hold(connection, scratch + used, (size_t)(count - used));
	update_interest(connection);
}

static void drain(struct connection *connection)
{
	if (!connection->draining) {
		connection->draining = true;
		connection->draining_since = boot_ms();
		shutdown(connection->source.fd, SHUT_WR);
		input_total -= buffer_length(&connection->in);
		buffer_free(&connection->in);
	}
	update_interest(connection);
}

static void flush(struct connection *connection)
{
	while (buffer_length(&connection->out) > 0) {
		ssize_t count = send(connection->source.fd, connection->out.data + connection->out.begin, buffer_length(&connection->out), MSG_NOSIGNAL);
		if (count < 0) {
			if (errno != EAGAIN && errno != EINTR) {
				connection_end(connection);
				return;
			}
			break;
		}
		buffer_consume(&connection->out, (size_t)count);
	}
	/* A subscriber or lister that never reads is let go before it costs memory that others need. */
	if (buffer_length(&connection->out) > OUTPUT_MAX) {
		connection_end(connection);
		return;
	}
	if (buffer_length(&connection->out) == 0) {
		if (connection->closing) {
			drain(connection);
			return;
		}
		if (connection->half_closing) {
			connection->half_closing = false;
			shutdown(connection->source.fd, SHUT_WR);
		}
	}
	if (connection_has_room(connection)) {
		if (connection->run != NULL)
			run_touch(connection->run);
		if (connection->relay != NULL)
			relay_output_has_room(connection->relay);
	}
	if (connection->source.fd >= 0)
		consume_held(connection);
}

static void connection_ready(struct source *source, uint32_t events)
{
	struct connection *connection = (struct connection *)source;
	if (connection->handed)
		connection_end(connection);
	else if ((events & EPOLLIN) != 0)
		read_input(connection);
	else if ((events & (EPOLLHUP | EPOLLERR)) != 0)
		connection_end(connection);
	if (source->fd >= 0 && (events & EPOLLOUT) != 0)
		connection_touch(connection);
}

void connections_announce(const struct record *record)
{
	for (struct connection *connection = connections; connection != NULL; connection = connection->next) {
		if (!connection->subscribed)
			continue;
		struct frame frame = frame_begin(&connection->out, EVENT);
		record_fields(&frame, record);
		frame_end(&frame);
		connection_touch(connection);
	}
}

void connections_round(void)
{
	while (touched != NULL) {
		struct connection *connection = touched;
		touched = connection->next_touched;
		connection->touched = false;
		if (connection->source.fd >= 0)
			flush(connection);
	}
	while (dead != NULL) {
		struct connection *connection = dead;
		dead = connection->next_dead;
		free(connection->buried);
		free(connection);
	}
}

bool connections_idle(void)
{
	for (struct connection *connection = connections; connection != NULL; connection = connection->next)
		if (buffer_length(&connection->out) > 0)
			return false;
	return true;
}
