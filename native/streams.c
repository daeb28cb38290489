/* See streams.h. */
#include "streams.h"

#include "input.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { STDOUT = 43, STDERR = 44 };

#define CHUNK 65536u
#define TERMINAL_OWED 262144u
#define END_OF_FILE 4 /* what a terminal's line discipline takes as the end of input */

static uint8_t sink[JOURNAL_HEADER + CHUNK];

static void output_ready(struct source *source, uint32_t events)
{
	struct stream *stream = (struct stream *)source;
	(void)events;
	/* Of a text that is not known to run init has the writing ends too (sessions.c): this is what it writes, and no end. */
	if (stream->run->launching)
		run_launched(stream->run);
	stream->readable = true;
	run_touch(stream->run);
}

static void flush_input(struct run *run);

static int input_descriptor(const struct run *run)
{
	return (run->flags & RUN_TERMINAL) != 0 ? run->output.source.fd : run->input.fd;
}

static void input_ready(struct source *source, uint32_t events)
{
	struct run *run = (struct run *)((char *)source - offsetof(struct run, input));
	(void)events;
	flush_input(run);
}

void streams_open(struct run *run, int output, int errors, int input)
{
	run->output = (struct stream){ .source = { .fd = output, .ready = output_ready }, .run = run, .type = STDOUT };
	run->errors = (struct stream){ .source = { .fd = errors, .ready = output_ready }, .run = run, .type = STDERR };
	run->input = (struct source){ .fd = input, .ready = input_ready };
}

static void note(struct stream *stream, bool terminal)
{
	int waiting = 0;
	if (stream->source.fd < 0)
		stream->owed = 0;
	else if (terminal)
		/* A terminal's buffers tell no exact count; reading until there is nothing gets all of it. */
		stream->owed = TERMINAL_OWED;
	else
		stream->owed = ioctl(stream->source.fd, FIONREAD, &waiting) < 0 || waiting < 0 ? 0 : (size_t)waiting;
}

void streams_await(struct run *run)
{
	struct source *const sources[] = { &run->output.source, &run->errors.source };
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
		if (sources[i]->fd >= 0 && !source_watch(sources[i], EPOLLIN))
			loop_alarm(boot_ms() + 100);
}

void streams_note_end(struct run *run)
{
	note(&run->output, (run->flags & RUN_TERMINAL) != 0);
	note(&run->errors, false);
}

static void stream_close(struct stream *stream)
{
	source_close(&stream->source);
	stream->owed = 0;
}

/* Reads one chunk into its connection, or to nowhere: bytes moved, 0 when there is nothing now, -1 at the end. */
static ssize_t move_chunk(struct run *run, struct stream *stream)
{
	struct connection *connection = run->connection;
	struct journal *journal = run->journal;
	uint8_t *room = sink + JOURNAL_HEADER, *frame = NULL;
	if (journal != NULL) {
		connection = NULL;
	} else if (connection != NULL) {
		frame = buffer_reserve(&connection->out, FRAME_HEADER + CHUNK);
		if (frame == NULL)
			return 0;
		room = frame + FRAME_HEADER;
	}
	ssize_t count = read(stream->source.fd, room, journal != NULL ? journal_record_max(journal) : CHUNK);
	if (count <= 0) {
		if (connection != NULL)
			buffer_added(&connection->out, 0);
		/* EIO is how a terminal says that nobody has it open. */
		return count < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
	}
	if (connection != NULL) {
		put_u32(frame, (uint32_t)count + 1);
		frame[4] = stream->type;
		buffer_added(&connection->out, FRAME_HEADER + (size_t)count);
		connection_touch(connection);
	} else if (journal != NULL) {
		journal_append(journal, stream->type == STDERR ? JOURNAL_STDERR : JOURNAL_STDOUT, sink, (size_t)count);
	}
	stream->owed -= stream->owed < (size_t)count ? stream->owed : (size_t)count;
	return count;
}

/* Whether what is read now can be passed on. */
static bool may_move(struct run *run, const struct stream *stream)
{
	uint64_t now = boot_ms();
	if (run->journal == NULL)
		return run->connection == NULL || connection_has_room(run->connection);
	if (!journal_settle(run->journal, now))
		return false;
	/* What the pipe still holds at the end of the leader is little, and no follower shall delay that end. */
	return journal_trim(run->journal, now) || stream->owed > 0 || run->tree_empty;
}

static void pump(struct run *run, struct stream *stream)
{
	int waiting = 0;
	if (stream->source.fd < 0)
		return;
	bool terminal = (run->flags & RUN_TERMINAL) != 0;
	/* Nobody can write any more and nothing is waiting: the common end of a quiet command. */
	if (run->tree_empty && !terminal && ioctl(stream->source.fd, FIONREAD, &waiting) == 0 && waiting == 0) {
		stream_close(stream);
		return;
	}
	while (stream->readable || stream->owed > 0 || run->tree_empty) {
		if (!may_move(run, stream)) {
			/* Out of epoll altogether: a pipe whose writer is gone reports that even to nobody's question. */
			source_unwatch(&stream->source);
			stream->readable = false;
			return;
		}
		ssize_t moved = move_chunk(run, stream);
		if (moved < 0 || (moved == 0 && run->tree_empty)) {
			stream_close(stream);
			return;
		}
		/* Once per event: a level-triggered watch comes back, and others have their turn between. */
		stream->readable = false;
		if (moved == 0) {
			stream->owed = 0;
			break;
		}
	}
	if (!source_watch(&stream->source, EPOLLIN | (terminal && buffer_length(&run->held) > 0 ? (uint32_t)EPOLLOUT : 0)))
		loop_alarm(boot_ms() + 100);
}

void streams_pump(struct run *run)
{
	if ((run->flags & RUN_TERMINAL) != 0 && buffer_length(&run->held) > 0)
		flush_input(run);
	pump(run, &run->output);
	pump(run, &run->errors);
}

bool run_wants_input(const struct run *run)
{
	return run == NULL || buffer_length(&run->held) < STDIN_HELD_MAX;
}

static void close_input(struct run *run)
{
	run->input_taken -= run->input_taken < buffer_length(&run->held) ? run->input_taken : buffer_length(&run->held);
	buffer_free(&run->held);
	source_close(&run->input);
}

static void flush_input(struct run *run)
{
	int fd = input_descriptor(run);
	bool waiting = false;
	while (fd >= 0 && buffer_length(&run->held) > 0) {
		ssize_t count = write(fd, run->held.data + run->held.begin, buffer_length(&run->held));
		if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
			waiting = true;
			break;
		}
		if (count < 0) {
			/* EPIPE: nobody reads it any more; what is held would never be taken. */
			close_input(run);
			break;
		}
		buffer_consume(&run->held, (size_t)count);
	}
	if ((run->flags & RUN_TERMINAL) == 0 && run->input.fd >= 0) {
		if (waiting && !source_watch(&run->input, EPOLLOUT))
			loop_alarm(boot_ms() + 100);
		else if (!waiting)
			source_unwatch(&run->input);
		if (!waiting && run->input_ended)
			source_close(&run->input);
	}
	if (run->parked != NULL)
		input_tell(run);
	if (run->connection != NULL && run_wants_input(run))
		connection_resume(run->connection);
}

size_t run_input(struct run *run, const uint8_t *bytes, size_t count)
{
	/* A run with a journal gets its input by INPUT alone: two sources would have no common order. */
	if (run == NULL || run->journal != NULL)
		return count;
	return streams_feed(run, bytes, count);
}

bool streams_takes_input(const struct run *run)
{
	return !run->input_ended && (run->flags & (RUN_STDIN | RUN_TERMINAL)) != 0 && input_descriptor(run) >= 0;
}

size_t streams_feed(struct run *run, const uint8_t *bytes, size_t count)
{
	if (run->input_ended || input_descriptor(run) < 0)
		return count;
	size_t direct = 0;
	if (buffer_length(&run->held) == 0) {
		ssize_t written = write(input_descriptor(run), bytes, count);
		if (written < 0 && errno != EAGAIN && errno != EINTR) {
			close_input(run);
			return count;
		}
		direct = written < 0 ? 0 : (size_t)written;
	}
	size_t room = STDIN_HELD_MAX - buffer_length(&run->held);
	size_t kept = count - direct < room ? count - direct : room;
	if (kept == 0 || !buffer_append(&run->held, bytes + direct, kept))
		return direct;
	if ((run->flags & RUN_TERMINAL) != 0)
		run_touch(run);
	else if (!source_watch(&run->input, EPOLLOUT))
		loop_alarm(boot_ms() + 100);
	return direct + kept;
}

void streams_end_input(struct run *run)
{
	static const uint8_t end[] = { END_OF_FILE };
	if ((run->flags & RUN_TERMINAL) != 0) {
		streams_feed(run, end, sizeof(end));
		return;
	}
	run->input_ended = true;
	if (buffer_length(&run->held) == 0)
		source_close(&run->input);
}
