/*
 * How a child of the spawner, and init before it is ready, says what happened: fixed records on a pipe.
 *
 * Always true: a record is smaller than PIPE_BUF, so it arrives whole or not at all; a pipe that ends without a
 * RECORD_DONE or RECORD_FAILED means the child died.
 */
#ifndef ATOLL_REPORT_H
#define ATOLL_REPORT_H

#include <stdint.h>

enum record_kind { RECORD_PID = 1, RECORD_DONE = 2, RECORD_FAILED = 3 };

struct record_report {
	uint32_t kind;
	int32_t value; /* a pid, or an errno */
	char step[48];
	char message[256];
};

/* 0, or -1 when nobody reads. */
int report_send(int pipe, enum record_kind kind, int32_t value);
/* A RECORD_DONE with a text. */
int report_result(int pipe, const char *text);
void report_failure(int pipe, int error, const char *step, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* 1 and a record, 0 at the end, -1 when there is none yet (EAGAIN). */
int report_receive(int pipe, struct record_report *record);

#endif
