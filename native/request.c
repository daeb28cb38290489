/* See request.h. */
#include "request.h"

#include "bytes.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum tag {
	TAG_ID = 1, TAG_HOSTNAME, TAG_DIRECTORY, TAG_LAYER, TAG_USR_LAYER, TAG_UID_BASE, TAG_CGROUP, TAG_V1_GROUP,
	TAG_DEADLINE, TAG_GENERATION, TAG_FLAGS, TAG_FENCE, TAG_OPEN_GUARD, TAG_END_FILE, TAG_NETWORK,
	TAG_WRITABLE = 20,
};

static bool take_text(const struct field *field, char **slot)
{
	*slot = field_text(field);
	return *slot != NULL;
}

static int take_many(const struct field *field, char **slots, size_t *count, size_t max, const char **why)
{
	if (*count == max) {
		*why = "too many layers or groups";
		return E2BIG;
	}
	if (!take_text(field, &slots[*count]))
		return -1;
	(*count)++;
	return 0;
}

static bool take_u32(const struct field *field, uint32_t *value)
{
	if (field->length != 4)
		return false;
	*value = get_u32(field->bytes);
	return true;
}

static bool take_u64(const struct field *field, uint64_t *value)
{
	if (field->length != 8)
		return false;
	*value = get_u64(field->bytes);
	return true;
}

static int take_guard(const struct field *field, uint32_t *guards, const char **why)
{
	static const struct {
		const char *name;
		uint32_t bit;
	} known[] = {
		{ "seccomp", OPEN_SECCOMP }, { "capabilities", OPEN_CAPABILITIES }, { "dumpable", OPEN_DUMPABLE },
		{ "masks", OPEN_MASKS }, { "cgroup", OPEN_CGROUP },
	};
	if (!field_is_text(field))
		return -1;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strlen(known[i].name) == field->length && memcmp(known[i].name, field->bytes, field->length) == 0) {
			*guards |= known[i].bit;
			return 0;
		}
	}
	*why = "OPEN_GUARD names a guard that cannot be left out";
	return EINVAL;
}

static int take(const struct field *field, struct create_request *r, const char **why)
{
	switch (field->tag) {
	case TAG_ID: return take_text(field, &r->id) ? 0 : -1;
	case TAG_HOSTNAME: return take_text(field, &r->hostname) ? 0 : -1;
	case TAG_DIRECTORY: return take_text(field, &r->directory) ? 0 : -1;
	case TAG_LAYER: return take_many(field, r->layers, &r->layer_count, LAYERS_MAX, why);
	case TAG_USR_LAYER: return take_many(field, r->usr_layers, &r->usr_layer_count, LAYERS_MAX, why);
	case TAG_UID_BASE: return take_u32(field, &r->uid_base) ? 0 : -1;
	case TAG_CGROUP: return take_text(field, &r->cgroup) ? 0 : -1;
	case TAG_V1_GROUP: return take_many(field, r->v1_groups, &r->v1_group_count, V1_GROUPS_MAX, why);
	case TAG_DEADLINE: return take_u64(field, &r->deadline) ? 0 : -1;
	case TAG_GENERATION: return take_u64(field, &r->generation) ? 0 : -1;
	case TAG_FLAGS: return take_u32(field, &r->flags) ? 0 : -1;
	case TAG_FENCE: return take_u64(field, &r->fence) ? 0 : -1;
	case TAG_OPEN_GUARD: return take_guard(field, &r->open_guards, why);
	case TAG_END_FILE: return take_text(field, &r->end_file) ? 0 : -1;
	case TAG_NETWORK: return network_parse(field->bytes, field->length, &r->network, NULL, why);
	case TAG_WRITABLE: return take_text(field, &r->writable) ? 0 : -1;
	default: return -1;
	}
}

static bool id_valid(const char *id)
{
	size_t length = strlen(id);
	return length >= 1 && length <= 64 && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

static bool path_valid(const char *path)
{
	return path[0] == '/' && strlen(path) < PATH_MAX;
}

static const char *objection(const struct create_request *r)
{
	if (!id_valid(r->id))
		return "ID must be 1 to 64 of [a-z0-9-]";
	if (r->hostname != NULL && (strlen(r->hostname) < 1 || strlen(r->hostname) > 64))
		return "HOSTNAME must be 1 to 64 bytes";
	if (!path_valid(r->directory) || !path_valid(r->cgroup))
		return "DIRECTORY and CGROUP must be absolute paths";
	if (r->writable != NULL && !path_valid(r->writable))
		return "WRITABLE must be an absolute path";
	for (size_t i = 0; i < r->layer_count; i++)
		if (!path_valid(r->layers[i]))
			return "LAYER must be an absolute path";
	for (size_t i = 0; i < r->usr_layer_count; i++)
		if (!path_valid(r->usr_layers[i]))
			return "USR_LAYER must be an absolute path";
	for (size_t i = 0; i < r->v1_group_count; i++)
		if (!path_valid(r->v1_groups[i]))
			return "V1_GROUP must be an absolute path";
	if (r->uid_base < SANDBOX_IDS || r->uid_base > UINT32_MAX - 2 * SANDBOX_IDS)
		return "UID_BASE must leave the machine's own first 65,536 ids alone and have 65,536 ids above it";
	if ((r->flags & ~CREATE_NO_NEW_PRIVILEGES) != 0)
		return "FLAGS has a bit nobody knows";
	if (r->end_file != NULL &&
	    (r->end_file[0] == 0 || strlen(r->end_file) > 200 || strchr(r->end_file, '/') != NULL || r->end_file[0] == '.'))
		return "END_FILE must be a plain file name that does not begin with a dot";
	return NULL;
}

int request_parse(const uint8_t *body, size_t length, struct create_request *request, const char **why)
{
	struct fields fields = {
		.at = body, .end = body + length,
		.repeatable = 1u << TAG_LAYER | 1u << TAG_USR_LAYER | 1u << TAG_V1_GROUP | 1u << TAG_OPEN_GUARD,
	};
	struct field field;
	const uint64_t required = 1u << TAG_ID | 1u << TAG_DIRECTORY | 1u << TAG_LAYER | 1u << TAG_UID_BASE | 1u << TAG_CGROUP;
	int more, refused = 0;
	*request = (struct create_request){ 0 };
	*why = NULL;
	while ((more = fields_next(&fields, &field)) > 0) {
		int result = take(&field, request, why);
		if (result < 0)
			return -1;
		if (result > 0 && refused == 0)
			refused = result;
	}
	if (more < 0 || (fields.seen & required) != required)
		return -1;
	if (refused != 0)
		return refused;
	*why = objection(request);
	return *why == NULL ? 0 : EINVAL;
}

void request_free(struct create_request *request)
{
	free(request->id);
	free(request->hostname);
	free(request->directory);
	free(request->cgroup);
	free(request->end_file);
	free(request->writable);
	for (size_t i = 0; i < request->layer_count; i++)
		free(request->layers[i]);
	for (size_t i = 0; i < request->usr_layer_count; i++)
		free(request->usr_layers[i]);
	for (size_t i = 0; i < request->v1_group_count; i++)
		free(request->v1_groups[i]);
	network_free(&request->network);
	*request = (struct create_request){ 0 };
}
