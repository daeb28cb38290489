/* See bytes.h. */
#include "bytes.h"

#include <stdlib.h>
#include <string.h>

uint8_t *buffer_reserve(struct buffer *buffer, size_t more)
{
	if (buffer->capacity - buffer->end >= more && buffer->data != NULL)
		return buffer->data + buffer->end;
	size_t used = buffer_length(buffer);
	if (buffer->begin > 0 && buffer->capacity - used >= more && buffer->begin >= used) {
		memcpy(buffer->data, buffer->data + buffer->begin, used);
	} else {
		size_t capacity = used + more;
		if (capacity < used * 2)
			capacity = used * 2;
		uint8_t *data = malloc(capacity);
		if (data == NULL)
			return NULL;
		if (used > 0)
			memcpy(data, buffer->data + buffer->begin, used);
		free(buffer->data);
		buffer->data = data;
		buffer->capacity = capacity;
	}
	buffer->begin = 0;
	buffer->end = used;
	return buffer->data + used;
}

void buffer_added(struct buffer *buffer, size_t count)
{
	buffer->end += count;
	if (buffer->begin == buffer->end)
		buffer_free(buffer);
}

bool buffer_append(struct buffer *buffer, const void *bytes, size_t count)
{
	if (count == 0)
		return true;
	uint8_t *room = buffer_reserve(buffer, count);
	if (room == NULL)
		return false;
	memcpy(room, bytes, count);
	buffer_added(buffer, count);
	return true;
}

void buffer_consume(struct buffer *buffer, size_t count)
{
	buffer->begin += count;
	if (buffer->begin == buffer->end)
		buffer_free(buffer);
}

void buffer_free(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer){ 0 };
}

uint16_t get_u16(const uint8_t *at)
{
	return (uint16_t)(at[0] | at[1] << 8);
}

uint32_t get_u32(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint64_t get_u64(const uint8_t *at)
{
	return (uint64_t)get_u32(at) | (uint64_t)get_u32(at + 4) << 32;
}

void put_u16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)value;
	at[1] = (uint8_t)(value >> 8);
}

void put_u32(uint8_t *at, uint32_t value)
{
	put_u16(at, (uint16_t)value);
	put_u16(at + 2, (uint16_t)(value >> 16));
}

void put_u64(uint8_t *at, uint64_t value)
{
	put_u32(at, (uint32_t)value);
	put_u32(at + 4, (uint32_t)(value >> 32));
}

struct frame frame_begin(struct buffer *buffer, uint8_t type)
{
	struct frame frame = { .buffer = buffer, .start = buffer_length(buffer) };
	uint8_t header[FRAME_HEADER] = { 0, 0, 0, 0, type };
	frame.failed = !buffer_append(buffer, header, sizeof(header));
	return frame;
}

void frame_bytes(struct frame *frame, const void *bytes, size_t count)
{
	if (!frame->failed && !buffer_append(frame->buffer, bytes, count))
		frame->failed = true;
}

void frame_u8(struct frame *frame, uint8_t value)
{
	frame_bytes(frame, &value, 1);
}

void frame_u16(struct frame *frame, uint16_t value)
{
	uint8_t raw[2];
	put_u16(raw, value);
	frame_bytes(frame, raw, sizeof(raw));
}

void frame_u32(struct frame *frame, uint32_t value)
{
	uint8_t raw[4];
	put_u32(raw, value);
	frame_bytes(frame, raw, sizeof(raw));
}

void frame_u64(struct frame *frame, uint64_t value)
{
	uint8_t raw[8];
	put_u64(raw, value);
	frame_bytes(frame, raw, sizeof(raw));
}

void frame_field(struct frame *frame, uint8_t tag, const void *bytes, uint32_t count)
{
	frame_u8(frame, tag);
	frame_u32(frame, count);
	frame_bytes(frame, bytes, count);
}

void frame_field_u32(struct frame *frame, uint8_t tag, uint32_t value)
{
	uint8_t raw[4];
	put_u32(raw, value);
	frame_field(frame, tag, raw, sizeof(raw));
}

void frame_field_u64(struct frame *frame, uint8_t tag, uint64_t value)
{
	uint8_t raw[8];
	put_u64(raw, value);
	frame_field(frame, tag, raw, sizeof(raw));
}

bool frame_end(struct frame *frame)
{
	struct buffer *buffer = frame->buffer;
	if (frame->failed) {
		/* A half-written frame would desynchronise the peer; take it back. */
		if (buffer->data != NULL) {
			buffer->end = buffer->begin + frame->start;
			if (buffer->begin == buffer->end)
				buffer_free(buffer);
		}
		return false;
	}
	put_u32(buffer->data + buffer->begin + frame->start, (uint32_t)(buffer_length(buffer) - frame->start - 4));
	return true;
}

int frame_parse(const uint8_t *bytes, size_t count, uint8_t *type, const uint8_t **body, size_t *length)
{
	if (count < 4)
		return 0;
	uint32_t size = get_u32(bytes);
	if (size < 1 || size > FRAME_LENGTH_MAX)
		return -1;
	if (count - 4 < size)
		return 0;
	*type = bytes[4];
	*body = bytes + FRAME_HEADER;
	*length = size - 1;
	return 1;
}

int fields_next(struct fields *fields, struct field *field)
{
	size_t left = (size_t)(fields->end - fields->at);
	if (left == 0)
		return 0;
	if (left < 5)
		return -1;
	field->tag = fields->at[0];
	field->length = get_u32(fields->at + 1);
	field->bytes = fields->at + 5;
	if (field->tag > 63 || field->length > left - 5)
		return -1;
	uint64_t bit = (uint64_t)1 << field->tag;
	if ((fields->seen & bit) != 0 && (fields->repeatable & bit) == 0)
		return -1;
	fields->seen |= bit;
	fields->at = field->bytes + field->length;
	return 1;
}

bool field_is_text(const struct field *field)
{
	return field->length == 0 || memchr(field->bytes, 0, field->length) == NULL;
}

char *field_text(const struct field *field)
{
	if (!field_is_text(field))
		return NULL;
	char *text = malloc((size_t)field->length + 1);
	if (text == NULL)
		return NULL;
	if (field->length > 0)
		memcpy(text, field->bytes, field->length);
	text[field->length] = 0;
	return text;
}
