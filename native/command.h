/* The child between fork and execve; see command.c. */
#ifndef ATOLL_COMMAND_H
#define ATOLL_COMMAND_H

#include "launcher.h"

_Noreturn void command_main(const struct launch *launch);

#endif
