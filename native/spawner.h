/* The resident parent of all sandboxes; see spawner.c. */
#ifndef ATOLL_SPAWNER_H
#define ATOLL_SPAWNER_H

int spawner_main(int argc, char **argv);

#endif
