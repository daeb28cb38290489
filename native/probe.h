/* Trying one guard of the machine; see probe.c. */
#ifndef ATOLL_PROBE_H
#define ATOLL_PROBE_H

int probe_guard(const char *name, int report);

#endif
