/* See input.h. */
#include "input.h"

#include "control.h"
#include "streams.h"

#include <errno.h>
#include <stdlib.h>

#define PARKED_MAX 64

struct parked {
	struct parked *next;
	struct connection *connection;
	uint64_t upto;
	uint32_t request;
};

static bool delivered(const struct run *run, uint64_t upto)
{
	return upto + buffer_length(&run->held) <= run->input_taken;
}

static void refuse_closed(struct connection *connection, uint32_t request)
{
	control_refuse(connection, request, 4, EPIPE, "the input is closed");
}

static void park(struct run *run, struct connection *connection, uint32_t request, uint64_t upto)
{
	unsigned count = 0;
	struct parked **link = &run->parked;
	for (; *link != NULL; link = &(*link)->next)
		count++;
	struct parked *parked = count < PARKED_MAX ? malloc(sizeof(*parked)) : NULL;
	if (parked == NULL) {
		control_refuse(connection, request, 3, ENOMEM, "too many waiting inputs");
		return;
	}
	*parked = (struct parked){ .connection = connection, .upto = upto, .request = request };
	*link = parked;
	connection->waits = true;
	input_tell(run);
}

void input_offer(struct run *run, struct connection *connection, uint32_t request, uint64_t offset, const uint8_t *bytes, size_t count)
{
	if (offset == UINT64_MAX) /* Behind whatever came before. */
		offset = run->input_taken;
	if (offset > run->input_taken || (count == 0 && offset != run->input_taken)) {
		control_refuse(connection, request, 1, ERANGE, "the input has another offset");
		return;
	}
	size_t known = run->input_taken - offset < count ? (size_t)(run->input_taken - offset) : count;
	bool fresh = known < count || (count == 0 && !run->input_ended);
	if (fresh && !streams_takes_input(run)) {
		refuse_closed(connection, request);
		return;
	}
	if (buffer_length(&run->held) + count - known > STDIN_HELD_MAX) {
		control_refuse(connection, request, 3, ENOBUFS, "the command does not read its input");
		return;
	}
	if (count > known) {
		size_t fed = streams_feed(run, bytes + known, count - known);
		if (!streams_takes_input(run)) {
			refuse_closed(connection, request);
			return;
		}
		run->input_taken += fed;
		if (fed < count - known) {
			control_refuse(connection, request, 3, ENOMEM, "init has no memory left");
			return;
		}
	} else if (fresh) {
		streams_end_input(run);
	}
	park(run, connection, request, offset + count);
}

void input_tell(struct run *run)
{
	bool open = streams_takes_input(run);
	for (struct parked **link = &run->parked; *link != NULL;) {
		struct parked *parked = *link;
		bool done = delivered(run, parked->upto);
		if (!done && (open || run->input.fd >= 0)) {
			link = &parked->next;
			continue;
		}
		*link = parked->next;
		if (done)
			control_answer(parked->connection, parked->request);
		else
			refuse_closed(parked->connection, parked->request);
		free(parked);
	}
}

void input_refuse_all(struct run *run)
{
	while (run->parked != NULL) {
		struct parked *parked = run->parked;
		run->parked = parked->next;
		refuse_closed(parked->connection, parked->request);
		free(parked);
	}
}

void input_leave(struct run *run, const struct connection *connection)
{
	for (struct parked **link = &run->parked; *link != NULL;) {
		struct parked *parked = *link;
		if (parked->connection != connection) {
			link = &parked->next;
			continue;
		}
		*link = parked->next;
		free(parked);
	}
}
