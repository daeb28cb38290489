/*
 * Growable byte buffers and the little-endian frames and fields of PROTOCOL.md.
 *
 * Always true: begin <= end <= capacity; an empty buffer owns no memory, so that an idle connection costs nothing.
 * Parsing never reads past the length it was given and never trusts a length it has not checked.
 */
#ifndef ATOLL_BYTES_H
#define ATOLL_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_LENGTH_MAX 8388608u
#define FRAME_HEADER 5u

struct buffer {
	uint8_t *data;
	size_t begin, end, capacity;
};

static inline size_t buffer_length(const struct buffer *buffer)
{
	return buffer->end - buffer->begin;
}

/* Room for `more` bytes at the end, or NULL without memory. The bytes count only after buffer_added. */
uint8_t *buffer_reserve(struct buffer *buffer, size_t more);
void buffer_added(struct buffer *buffer, size_t count);
bool buffer_append(struct buffer *buffer, const void *bytes, size_t count);
void buffer_consume(struct buffer *buffer, size_t count);
void buffer_free(struct buffer *buffer);

uint16_t get_u16(const uint8_t *at);
uint32_t get_u32(const uint8_t *at);
uint64_t get_u64(const uint8_t *at);
void put_u16(uint8_t *at, uint16_t value);
void put_u32(uint8_t *at, uint32_t value);
void put_u64(uint8_t *at, uint64_t value);

/* A frame being written at the end of a buffer. A failed allocation is remembered and reported by frame_end. */
struct frame {
	struct buffer *buffer;
	size_t start; /* offset of the header from buffer->begin */
	bool failed;
};

struct frame frame_begin(struct buffer *buffer, uint8_t type);
void frame_u8(struct frame *frame, uint8_t value);
void frame_u16(struct frame *frame, uint16_t value);
void frame_u32(struct frame *frame, uint32_t value);
void frame_u64(struct frame *frame, uint64_t value);
void frame_bytes(struct frame *frame, const void *bytes, size_t count);
void frame_field(struct frame *frame, uint8_t tag, const void *bytes, uint32_t count);
void frame_field_u32(struct frame *frame, uint8_t tag, uint32_t value);
void frame_field_u64(struct frame *frame, uint8_t tag, uint64_t value);
bool frame_end(struct frame *frame);

/* The first complete frame in `bytes`: 1 and its parts, 0 when more bytes are needed, -1 when malformed. */
int frame_parse(const uint8_t *bytes, size_t count, uint8_t *type, const uint8_t **body, size_t *length);

struct field {
	uint8_t tag;
	uint32_t length;
	const uint8_t *bytes;
};

struct fields {
	const uint8_t *at, *end;
	uint64_t repeatable; /* bit n: tag n may appear more than once */
	uint64_t seen;
};

/* 1 and the next field, 0 at the end, -1 when malformed (tags above 63 are unknown to everybody). */
int fields_next(struct fields *fields, struct field *field);
bool field_is_text(const struct field *field);
/* A NUL-terminated copy of a text field, or NULL when it holds a NUL or there is no memory. */
char *field_text(const struct field *field);

#endif
