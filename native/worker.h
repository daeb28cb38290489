/*
 * A file worker: the process that serves the file requests of one connection, inside, as one user; see worker.c.
 *
 * Always true: it was forked from init by the launcher and executes nothing; it uses neither libc's allocator nor
 * anything that does. It serves one request after another, and each ends with exactly one last frame.
 */
#ifndef ATOLL_WORKER_H
#define ATOLL_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define WORKER_CONNECTION 3
#define DATA_MAX (256u << 10)

enum worker_frame {
	WORKER = 70, WORKER_OK, DONE, FAULT, STAT, STAT_IS, READ, DATA, WRITE, LIST, ENTRY, MAKE, MOVE, REMOVE, COPY, MODE,
	PACK, UNPACK, WATCH, CHANGE, LABELS, SET_LABELS,
};
enum fault_code { FAULT_OTHER = 12, FAULT_SPECIAL = 13, FAULT_CHANGED = 14 };

#define KEEP 0xffffffffu

/* One request: what follows its number. Texts are checked for NUL and ended by one. */
struct request {
	uint8_t type;
	uint32_t number;
	const uint8_t *body;
	size_t length;
};

/* `early`: what init had read of the connection beyond WORKER. */
_Noreturn void worker_main(const uint8_t *early, size_t count);

/* Ends the worker: a malformed frame, or nobody there. Leaves no half-written file. */
_Noreturn void worker_end(void);
/* Called by worker_end; what it names must be safe at any time. NULL: nothing. */
void worker_on_end(void (*tidy)(void));

/* Answers. */
void answer_done(uint32_t number);
/* `text` is the path it is about, or NULL. */
void answer_fault(uint32_t number, uint16_t code, int error, const char *text);
/* A STAT_IS, or with a path an ENTRY. */
void answer_stat(uint32_t number, const struct stat *info, const char *path, const char *target);
void answer_change(uint32_t number, uint8_t what, uint32_t cookie, const char *path, size_t length);
/* Room for the payload of a DATA frame of at most `most` bytes; sent with what it turned out to be. */
uint8_t *data_room(size_t most);
void data_send(uint32_t number, size_t length);
/*
 * The same, with `more` bytes of a file from `offset` on behind them in the frame, which the kernel passes on without a copy. It is announced before
 * it is read: a file that has less by then ends the worker.
 */
void data_send_file(uint32_t number, size_t length, int file, uint64_t offset, size_t more);
void answers_flush(void);

/* The next bytes of DATA of the request that is being served: 1, 0 at its DONE, -1 when the client gave up. */
int data_next(uint32_t number, const uint8_t **bytes, size_t *length);
/* Drops what is left of the data. */
void data_skip(uint32_t number);

/* Each serves one request. */
void serve_stat(const struct request *request);
void serve_read(const struct request *request);
void serve_write(const struct request *request);
void serve_list(const struct request *request);
void serve_make(const struct request *request);
void serve_move(const struct request *request);
void serve_remove(const struct request *request);
void serve_copy(const struct request *request);
void serve_mode(const struct request *request);
void serve_pack(const struct request *request);
void serve_unpack(const struct request *request);
void serve_watch(const struct request *request);
void serve_labels(const struct request *request);
void serve_set_labels(const struct request *request);

#endif
