/* See report.h. */
#include "report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int send_record(int pipe, const struct record_report *record)
{
	ssize_t count;
	do
		count = write(pipe, record, sizeof(*record));
	while (count < 0 && errno == EINTR);
	return count == (ssize_t)sizeof(*record) ? 0 : -1;
}

int report_send(int pipe, enum record_kind kind, int32_t value)
{
	struct record_report record = { .kind = kind, .value = value };
	return send_record(pipe, &record);
}

int report_result(int pipe, const char *text)
{
	struct record_report record = { .kind = RECORD_DONE };
	snprintf(record.message, sizeof(record.message), "%s", text);
	return send_record(pipe, &record);
}

void report_failure(int pipe, int error, const char *step, const char *format, ...)
{
	struct record_report record = { .kind = RECORD_FAILED, .value = error };
	va_list arguments;
	snprintf(record.step, sizeof(record.step), "%s", step);
	va_start(arguments, format);
	vsnprintf(record.message, sizeof(record.message), format, arguments);
	va_end(arguments);
	send_record(pipe, &record);
}

int report_receive(int pipe, struct record_report *record)
{
	ssize_t count;
	do
		count = read(pipe, record, sizeof(*record));
	while (count < 0 && errno == EINTR);
	if (count < 0)
		return -1;
	if (count != (ssize_t)sizeof(*record))
		return 0;
	record->step[sizeof(record->step) - 1] = 0;
	record->message[sizeof(record->message) - 1] = 0;
	return 1;
}
