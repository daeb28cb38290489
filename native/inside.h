/* The inside of a sandbox, set up by init itself; see inside.c. */
#ifndef ATOLL_INSIDE_H
#define ATOLL_INSIDE_H

#include <stdbool.h>

/* Each returns NULL, or the step that failed with errno set. */

/* After the id maps exist: uid and gid 0 inside, no supplementary groups. For the calling thread only. */
const char *inside_become_root(void);
/* Network, ipc and uts namespaces, the loopback interface, the host name. */
const char *inside_leave_host(const char *hostname);
/* The mount namespace, /dev, /proc, /run, masks, and the new root. `*terminals` becomes the devpts root,
 * `*own` DIRECTORY through its id-mapped mount. */
const char *inside_mount(bool masks, int *terminals, int *own);

#endif
