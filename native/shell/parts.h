/* What the parts of the object give each other. */
#ifndef ATOLL_SHELL_PARTS_H
#define ATOLL_SHELL_PARTS_H

#include "../session-wire.h"

#include <stdbool.h>
#include <stddef.h>

/* One order as received. The strings are ours until the next one. */
struct order {
	struct session_order head;
	char *directory, *text; /* directory: NULL without one */
	char *variables, *variables_end;
	int input, output, errors, birth; /* -1: none */
	void *file;                       /* a mapping to give back */
	size_t file_length;
};

/* A refusal before anything ran: a code of PROTOCOL.md and an errno, or for a read-only variable its number. Code 0: none. */
struct trouble {
	uint32_t code, error;
};

enum { CODE_DIRECTORY = 8, CODE_FORK = 11, CODE_OTHER = 12, CODE_READ_ONLY = 18 };

/* descriptors.c */
void descriptors_open(int idle);
struct trouble descriptors_give(const struct order *order, bool all);
void descriptors_take_back(void);

/* surroundings.c */
struct trouble surroundings_enter(const struct order *order);
void surroundings_leave(void);
struct trouble variables_keep(const struct order *order);

/* process.c */
void process_launch(const struct order *order, int line);

/* session.c */
void session_say(uint32_t kind, uint32_t value, uint32_t error);
int shell_execute(char *text, int flags);

#endif
