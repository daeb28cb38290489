/*
 * The relay: a client outside talks to a service on a port inside: on loopback, or on another address of the sandbox.
 *
 * Always true: each direction holds at most 64 KiB and closes on its own, so that a half-closed connection behaves as
 * it would without us; the connection owns the relay, and both end together. What a service said before it broke off
 * reaches the client, whatever the client is sending meanwhile. A relay never leaves the sandbox: an address that is
 * given is also the one it connects from, which only an address of the sandbox itself can be.
 */
#include "relay.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT = 60, CONNECTED = 61 };

#define HELD_MAX 65536u

union endpoint {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

struct relay {
	struct source source; /* the socket inside */
	struct connection *connection;
	struct buffer held;   /* from the client, not yet taken inside */
	union endpoint target;
	bool connecting, may_try_v6;
	bool input_ended, input_closed, output_ended;
};

static void relay_ready(struct source *source, uint32_t events);

static void update(struct relay *relay)
{
	if (relay->source.fd < 0)
		return;
	uint32_t interest = 0;
	if (relay->connecting || buffer_length(&relay->held) > 0)
		interest |= EPOLLOUT;
	if (!relay->connecting && !relay->output_ended && connection_has_room(relay->connection))
		interest |= EPOLLIN;
	if (interest == 0)
		source_unwatch(&relay->source);
	else if (!source_watch(&relay->source, interest))
		connection_end(relay->connection);
}

static socklen_t endpoint_size(const union endpoint *endpoint)
{
	return endpoint->any.sa_family == AF_INET6 ? sizeof(endpoint->v6) : sizeof(endpoint->v4);
}

static union endpoint loopback(uint16_t port, bool v6)
{
	if (v6)
		return (union endpoint){ .v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback } };
	return (union endpoint){ .v4 = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) } };
}

/* Starts a connection attempt: 0, or an errno. */
static int try_connect(struct relay *relay)
{
	const union endpoint *target = &relay->target;
	union endpoint from = *target;
	int on = 1;
	int fd = socket(target->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	/* Our port is chosen by connect, which may share one between targets; bind alone would take it for all. */
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	relay->source = (struct source){ .fd = fd, .ready = relay_ready };
	if (from.any.sa_family == AF_INET6)
		from.v6.sin6_port = 0;
	else
		from.v4.sin_port = 0;
	int result = bind(fd, &from.any, endpoint_size(&from));
	if (result == 0)
		result = connect(fd, &target->any, endpoint_size(target));
	if (result < 0 && errno != EINPROGRESS) {
		int error = errno;
		source_close(&relay->source);
		return error;
	}
	relay->connecting = true;
	return source_watch(&relay->source, EPOLLOUT) ? 0 : ENOSPC;
}

/* A connect to a free port that the kernel happens to choose as our own succeeds, with nobody at the other end. */
static bool is_to_itself(int fd)
{
	union endpoint self = { 0 }, peer = { 0 };
	socklen_t self_size = sizeof(self), peer_size = sizeof(peer);
	if (getsockname(fd, &self.any, &self_size) < 0 || getpeername(fd, &peer.any, &peer_size) < 0)
		return true;
	return self_size == peer_size && memcmp(&self, &peer, self_size) == 0;
}

static void connect_failed(struct relay *relay, int error)
{
	source_close(&relay->source);
	if (relay->may_try_v6) {
		relay->may_try_v6 = false;
		relay->target = loopback(ntohs(relay->target.v4.sin_port), true);
		if (try_connect(relay) == 0)
			return;
	}
	connection_refuse(relay->connection, 12, (uint32_t)error, "nothing answers at that port");
}

static void connected(struct relay *relay)
{
	int error = 0;
	socklen_t size = sizeof(error);
	if (getsockopt(relay->source.fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		error = errno;
	if (error == 0 && is_to_itself(relay->source.fd))
		error = ECONNREFUSED;
	if (error != 0) {
		connect_failed(relay, error);
		return;
	}
	relay->connecting = false;
	struct frame frame = frame_begin(&relay->connection->out, CONNECTED);
	frame_end(&frame);
	relay->connection->raw = true;
	connection_touch(relay->connection);
	update(relay);
	connection_resume(relay->connection);
}

static void close_when_done(struct relay *relay)
{
	if (relay->input_closed && relay->output_ended)
		connection_finish(relay->connection);
}

/* Nobody inside takes what the client sends: it is dropped from now on. */
static void close_input(struct relay *relay)
{
	buffer_free(&relay->held);
	relay->input_closed = true;
	close_when_done(relay);
}

static void write_inside(struct relay *relay)
{
	while (buffer_length(&relay->held) > 0) {
		ssize_t count = send(relay->source.fd, relay->held.data + relay->held.begin, buffer_length(&relay->held), MSG_NOSIGNAL);
		if (count < 0) {
			if (errno != EAGAIN && errno != EINTR) {
				close_input(relay); /* The kernel may still have its last words. */
				return;
			}
			break;
		}
		buffer_consume(&relay->held, (size_t)count);
	}
	if (relay->input_ended && !relay->input_closed && buffer_length(&relay->held) == 0) {
		shutdown(relay->source.fd, SHUT_WR);
		close_input(relay);
	}
}

static void read_inside(struct relay *relay)
{
	struct connection *connection = relay->connection;
	uint8_t *room = buffer_reserve(&connection->out, HELD_MAX);
	if (room == NULL) {
		connection_end(connection);
		return;
	}
	ssize_t count = read(relay->source.fd, room, HELD_MAX);
	int error = errno;
	buffer_added(&connection->out, count > 0 ? (size_t)count : 0);
	if (count > 0) {
		/* A service that writes its answer in two pieces waits for this acknowledgement, which the kernel would hold back for 40 ms. */
		int on = 1;
		setsockopt(relay->source.fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
		connection_touch(connection);
	} else if (count == 0) {
		relay->output_ended = true;
		if (relay->input_closed)
			connection_finish(connection);
		else
			connection_half_close(connection);
	} else if (error != EAGAIN && error != EINTR) {
		relay->output_ended = true;
		close_input(relay);
	}
}

static void relay_ready(struct source *source, uint32_t events)
{
	struct relay *relay = (struct relay *)source;
	struct connection *connection = relay->connection;
	if (relay->connecting) {
		connected(relay);
		return;
	}
	if ((events & (EPOLLOUT | EPOLLERR)) != 0)
		write_inside(relay);
	if (connection->relay == relay && source->fd >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !relay->output_ended)
		read_inside(relay);
	if (connection->relay != relay)
		return;
	update(relay);
	connection_resume(connection);
}

/* What a CONNECT names; false: malformed. */
static bool parse_target(const uint8_t *body, size_t length, union endpoint *target)
{
	if (length < 3 || (body[2] != 0 && body[2] != 4 && body[2] != 6))
		return false;
	*target = loopback(get_u16(body), body[2] == 6);
	if (length == 3)
		return true;
	if (body[2] == 4 && length == 3 + sizeof(target->v4.sin_addr))
		memcpy(&target->v4.sin_addr, body + 3, sizeof(target->v4.sin_addr));
	else if (body[2] == 6 && length == 3 + sizeof(target->v6.sin6_addr))
		memcpy(&target->v6.sin6_addr, body + 3, sizeof(target->v6.sin6_addr));
	else
		return false;
	return true;
}

bool relay_frame(struct connection *connection, uint8_t type, const uint8_t *body, size_t length)
{
	union endpoint target;
	if (type != CONNECT || connection->relay != NULL || !parse_target(body, length, &target))
		return false;
	struct relay *relay = calloc(1, sizeof(*relay));
	if (relay == NULL) {
		connection_refuse(connection, 3, ENOMEM, "init has no memory left");
		return true;
	}
	*relay = (struct relay){ .source.fd = -1, .connection = connection, .target = target, .may_try_v6 = body[2] == 0 };
	connection->relay = relay;
	int error = try_connect(relay);
	if (error != 0)
		connect_failed(relay, error);
	return true;
}

size_t relay_input(struct relay *relay, const uint8_t *bytes, size_t count)
{
	size_t direct = 0;
	if (relay->input_closed)
		return count;
	if (buffer_length(&relay->held) == 0 && count > 0) {
		ssize_t sent = send(relay->source.fd, bytes, count, MSG_NOSIGNAL);
		direct = sent > 0 ? (size_t)sent : 0;
	}
	size_t room = buffer_length(&relay->held) < HELD_MAX ? HELD_MAX - buffer_length(&relay->held) : 0;
	size_t kept = count - direct < room ? count - direct : room;
	if (kept == 0 || !buffer_append(&relay->held, bytes + direct, kept))
		return direct;
	update(relay);
	return direct + kept;
}

bool relay_wants_input(const struct relay *relay)
{
	return !relay->input_ended && buffer_length(&relay->held) < HELD_MAX;
}

bool relay_input_ended(struct relay *relay)
{
	relay->input_ended = true;
	write_inside(relay);
	return true;
}

void relay_output_has_room(struct relay *relay)
{
	update(relay);
}

void relay_end(struct relay *relay)
{
	source_close(&relay->source);
	buffer_free(&relay->held);
}
