/*
 * The time of commands: boot time, less what has passed while they stood still for a pause or a checkpoint. What a command, a shell or a
 * file worker has time for is counted in it.
 *
 * Always true: it never goes back, and stands still from when init hears that CGROUP/run is frozen until it hears that it is not.
 */
#ifndef ATOLL_PACE_H
#define ATOLL_PACE_H

#include <stdbool.h>
#include <stdint.h>

bool pace_open(void);
uint64_t commands_ms(void);
/* As loop_alarm, for a time of commands. While they stand still nothing is set; all alarms are asked for again when they go on. */
void commands_alarm(uint64_t at);

#endif
