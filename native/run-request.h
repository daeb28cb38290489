/* What a RUN asks for, parsed but not yet checked; see run-request.c. */
#ifndef ATOLL_RUN_REQUEST_H
#define ATOLL_RUN_REQUEST_H

#include "bytes.h"

enum run_tag {
	TAG_RUN = 1, TAG_ARG, TAG_ENV, TAG_CWD, TAG_USER, TAG_FLAGS, TAG_TIMEOUT, TAG_GRACE, TAG_TOKEN, TAG_GENERATION,
	TAG_SIZE, TAG_SCRIPT, TAG_JOURNAL, TAG_JOURNAL_LIMIT, TAG_SESSION, TAG_UNSET,
};

struct wish {
	struct field id, directory, user, script, journal, session;
	bool has_journal, has_script, has_token, has_generation, has_session;
	size_t argument_count, environment_count, unset_count, text_bytes;
	uint32_t flags, grace;
	uint64_t timeout, token, generation, journal_limit;
	uint16_t columns, rows;
};

/* The fields of a RUN, which repeats ARG, ENV and UNSET. */
struct fields run_fields(const uint8_t *body, size_t length);
/* A pipe whose end `ours` does not block. */
bool run_open_pipe(int ends[2], int ours);

#endif
