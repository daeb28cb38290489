/*
 * Loaded before libc, it makes the locks of files behave as on file systems where they do not work. LOCKS says how:
 *   lie      everybody gets them
 *   none     nobody does, as if somebody else had them
 *   refuse   the system says that there are none
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static int is(const char *how)
{
	const char *given = getenv("LOCKS");
	return given != NULL && strcmp(given, how) == 0;
}

static int answer(const char *name, int fd, int command, void *argument)
{
	int (*real)(int, int, ...) = dlsym(RTLD_NEXT, name);
	int takes = command == F_SETLK || command == F_SETLKW;

	if (takes && is("lie"))
		return 0;
	if (takes && (is("none") || is("refuse"))) {
		errno = is("none") ? ENOLCK : EINVAL;
		return -1;
	}
	if (command == F_GETLK && is("lie")) {
		((struct flock *)argument)->l_type = F_UNLCK;
		return 0;
	}
	return real(fd, command, argument);
}

int fcntl(int fd, int command, ...)
{
	va_list rest;
	va_start(rest, command);
	void *argument = va_arg(rest, void *);
	va_end(rest);
	return answer("fcntl", fd, command, argument);
}

int fcntl64(int fd, int command, ...)
{
	va_list rest;
	va_start(rest, command);
	void *argument = va_arg(rest, void *);
	va_end(rest);
	return answer("fcntl64", fd, command, argument);
}
