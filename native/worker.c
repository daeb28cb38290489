/*
 * The main loop of a file worker and its frames; what the requests do is in file-*.c.
 *
 * Always true: answers are held back until the worker would wait for the client, so that a request that was sent
 * together with others costs neither side a wake-up of its own.
 */
#include "worker.h"

#include "bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define NUMBER 4u
#define IN_SIZE (640u << 10)
#define OUT_SIZE (DATA_MAX + (64u << 10))
#define REQUEST_MAX (16u << 10)
#define ERROR_PIPE 4

static uint8_t in[IN_SIZE + 1], out[OUT_SIZE];
static size_t in_begin, in_end, out_end;
static void (*tidy_up)(void);

void worker_on_end(void (*tidy)(void))
{
	tidy_up = tidy;
}

_Noreturn void worker_end(void)
{
	if (tidy_up != NULL)
		tidy_up();
	_exit(0);
}

void answers_flush(void)
{
	for (size_t sent = 0; sent < out_end;) {
		ssize_t count = send(WORKER_CONNECTION, out + sent, out_end - sent, MSG_NOSIGNAL);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			worker_end();
		sent += (size_t)count;
	}
	out_end = 0;
}

/* Room for a frame with `size` bytes after its number. */
static uint8_t *begin_answer(uint8_t type, uint32_t number, size_t size)
{
	if (OUT_SIZE - out_end < FRAME_HEADER + NUMBER + size)
		answers_flush();
	uint8_t *at = out + out_end;
	put_u32(at, (uint32_t)(1 + NUMBER + size));
	at[4] = type;
	put_u32(at + FRAME_HEADER, number);
	out_end += FRAME_HEADER + NUMBER + size;
	return at + FRAME_HEADER + NUMBER;
}

void answer_done(uint32_t number)
{
	begin_answer(DONE, number, 0);
}

void answer_fault(uint32_t number, uint16_t code, int error, const char *text)
{
	size_t length = text == NULL ? 0 : strnlen(text, REQUEST_MAX);
	uint8_t *at = begin_answer(FAULT, number, 6 + length);
	put_u16(at, code);
	put_u32(at + 2, (uint32_t)error);
	if (length > 0)
		memcpy(at + 6, text, length);
}

static uint8_t type_of(mode_t mode)
{
	if (S_ISREG(mode))
		return 1;
	if (S_ISDIR(mode))
		return 2;
	return S_ISLNK(mode) ? 3 : 4;
}

static uint64_t nanoseconds(struct timespec time)
{
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void answer_stat(uint32_t number, const struct stat *info, const char *path, const char *target)
{
	size_t path_length = path == NULL ? 0 : strlen(path), target_length = target == NULL ? 0 : strlen(target);
	size_t size = 45 + (path == NULL ? 0 : 2 + path_length) + target_length;
	uint8_t *at = begin_answer(path == NULL ? STAT_IS : ENTRY, number, size);
	at[0] = type_of(info->st_mode);
	put_u32(at + 1, info->st_mode & 07777);
	put_u32(at + 5, info->st_uid);
	put_u32(at + 9, info->st_gid);
	put_u64(at + 13, (uint64_t)info->st_size);
	put_u64(at + 21, nanoseconds(info->st_mtim));
	put_u64(at + 29, info->st_ino);
	put_u64(at + 37, nanoseconds(info->st_ctim));
	at += 45;
	if (path != NULL) {
		put_u16(at, (uint16_t)path_length);
		memcpy(at + 2, path, path_length);
		at += 2 + path_length;
	}
	if (target_length > 0)
		memcpy(at, target, target_length);
}

void answer_change(uint32_t number, uint8_t what, uint32_t cookie, const char *path, size_t length)
{
	uint8_t *at = begin_answer(CHANGE, number, 5 + length);
	at[0] = what;
	put_u32(at + 1, cookie);
	if (length > 0)
		memcpy(at + 5, path, length);
}

uint8_t *data_room(size_t most)
{
	if (OUT_SIZE - out_end < FRAME_HEADER + NUMBER + most)
		answers_flush();
	return out + out_end + FRAME_HEADER + NUMBER;
}

void data_send(uint32_t number, size_t length)
{
	begin_answer(DATA, number, length);
	/* What waits behind a large frame waits long. */
	if (out_end >= OUT_SIZE / 2)
		answers_flush();
}

/* What the file system cannot pass on is copied after all. */
static void copy_file(int file, uint64_t offset, size_t left)
{
	while (left > 0) {
		ssize_t count = pread(file, out, left < OUT_SIZE ? left : OUT_SIZE, (off_t)offset);
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			worker_end();
		out_end = (size_t)count;
		answers_flush();
		offset += (uint64_t)count;
		left -= (size_t)count;
	}
}

void data_send_file(uint32_t number, size_t length, int file, uint64_t offset, size_t more)
{
	begin_answer(DATA, number, length + more);
	out_end -= more;
	answers_flush();
	off_t at = (off_t)offset;
	while (more > 0) {
		ssize_t count = sendfile(WORKER_CONNECTION, file, &at, more);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0 && (errno == EINVAL || errno == ENOSYS)) {
			copy_file(file, (uint64_t)at, more);
			return;
		}
		if (count <= 0)
			worker_end();
		more -= (size_t)count;
	}
}

/* Reads on: there is room, because no frame is larger than the buffer and a partial one is moved to its front. */
static void read_more(void)
{
	if (in_begin == in_end) {
		in_begin = in_end = 0;
	} else if (in_begin > 0) {
		memmove(in, in + in_begin, in_end - in_begin);
		in_end -= in_begin;
		in_begin = 0;
	}
	answers_flush();
	for (;;) {
		ssize_t count = recv(WORKER_CONNECTION, in + in_end, IN_SIZE - in_end, 0);
		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			worker_end();
		in_end += (size_t)count;
		return;
	}
}

/* The next whole frame. Its bytes are there until the next one is asked for. */
static struct request next_frame(void)
{
	for (;;) {
		uint8_t type;
		const uint8_t *body;
		size_t length;
		int result = frame_parse(in + in_begin, in_end - in_begin, &type, &body, &length);
		if (result < 0)
			worker_end();
		if (in_end - in_begin >= FRAME_HEADER) {
			uint32_t size = get_u32(in + in_begin);
			if (size < 1 + NUMBER || size > 1 + NUMBER + (in[in_begin + 4] == DATA ? DATA_MAX : REQUEST_MAX))
				worker_end();
		}
		if (result > 0) {
			in_begin += FRAME_HEADER + length;
			return (struct request){ type, get_u32(body), body + NUMBER, length - NUMBER };
		}
		read_more();
	}
}

int data_next(uint32_t number, const uint8_t **bytes, size_t *length)
{
	for (;;) {
		struct request frame = next_frame();
		if (frame.number != number || (frame.type != DATA && frame.type != DONE && frame.type != FAULT))
			worker_end();
		if (frame.type == DONE)
			return frame.length == 0 ? 0 : -1;
		if (frame.type == FAULT)
			return -1;
		if (frame.length == 0)
			continue;
		*bytes = frame.body;
		*length = frame.length;
		return 1;
	}
}

void data_skip(uint32_t number)
{
	const uint8_t *bytes;
	size_t length;
	while (data_next(number, &bytes, &length) > 0)
		;
}

static void serve(const struct request *request)
{
	switch (request->type) {
	case STAT: serve_stat(request); return;
	case READ: serve_read(request); return;
	case WRITE: serve_write(request); return;
	case LIST: serve_list(request); return;
	case MAKE: serve_make(request); return;
	case MOVE: serve_move(request); return;
	case REMOVE: serve_remove(request); return;
	case COPY: serve_copy(request); return;
	case MODE: serve_mode(request); return;
	case PACK: serve_pack(request); return;
	case UNPACK: serve_unpack(request); return;
	case WATCH: serve_watch(request); return;
	case LABELS: serve_labels(request); return;
	case SET_LABELS: serve_set_labels(request); return;
	default: worker_end();
	}
}

_Noreturn void worker_main(const uint8_t *early, size_t count)
{
	static uint8_t copy[REQUEST_MAX + 1];
	/* Init does not touch the connection any more, except to see its end. */
	int flags = fcntl(WORKER_CONNECTION, F_GETFL);
	if (flags < 0 || fcntl(WORKER_CONNECTION, F_SETFL, flags & ~O_NONBLOCK) < 0 || count > IN_SIZE)
		_exit(1);
	prctl(PR_SET_NAME, "atoll-files");
	/* sendfile has no flag for it. */
	signal(SIGPIPE, SIG_IGN);
	if (count > 0)
		memcpy(in, early, count);
	in_end = count;
	uint8_t *at = out;
	put_u32(at, 1);
	at[4] = WORKER_OK;
	out_end = FRAME_HEADER;
	answers_flush();
	close(ERROR_PIPE);
	for (;;) {
		struct request request = next_frame();
		if (request.length > REQUEST_MAX)
			worker_end();
		/* Texts at the end of a body are ended by a NUL here, and the input buffer goes on. */
		memcpy(copy, request.body, request.length);
		copy[request.length] = 0;
		request.body = copy;
		serve(&request);
	}
}
