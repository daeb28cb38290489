/*
 * What init and the object that it loads into the bash of a session say to each other: messages of a SOCK_SEQPACKET pair.
 *
 * Always true: at most one order is unanswered. An order is a header, then a directory, variables and a text, each ended by a NUL, in the
 * same message or (when ORDER_IN_FILE) in a file that is its last descriptor. Both ends read what the other sends as hostile bytes.
 */
#ifndef ATOLL_SESSION_WIRE_H
#define ATOLL_SESSION_WIRE_H

#include <stdint.h>

/* Where bash finds the object and its end of the pair when it starts; the object moves both away at once. */
#define SESSION_OBJECT 3
#define SESSION_LINE 5

#define ORDER_INLINE_MAX 32768u
#define ORDER_BYTES_MAX (16u << 20)
#define ORDER_VARIABLES_MAX 256u

enum order_kind {
	ORDER_EXECUTE = 1, /* descriptors: input unless ORDER_NO_INPUT, output, errors */
	ORDER_FORK,        /* the same, then the new process's end of its birth pair */
	ORDER_KEEP,        /* sets the variables for good; no descriptors */
};

enum order_flag { ORDER_IN_FILE = 1, ORDER_NO_INPUT = 2 };

struct session_order {
	uint32_t kind, flags, serial;
	uint32_t directory; /* bytes with the NUL; 0: none */
	uint32_t variables; /* bytes: `NAME=value` sets, `NAME` unsets, each with a NUL */
	uint32_t text;      /* bytes with the NUL */
};

enum answer_kind {
	ANSWER_READY = 1, /* loaded; the first message, with serial 0 */
	ANSWER_MISSING,   /* instead of READY: the bash lacks the symbol in `text` */
	ANSWER_DONE,      /* `value`: the exit status; FORK: the process exists; KEEP: it is set */
	ANSWER_NOT_RUN,   /* instead of DONE, and before the text is begun: `value` is a code of PROTOCOL.md, `error` an errno */
};

struct session_answer {
	uint32_t kind, serial, value, error;
	char text[48];
};

/* From a new process through its birth pair; it runs its text when it has read one byte. */
struct session_birth {
	uint32_t code, error; /* 0: ready */
};

#endif
