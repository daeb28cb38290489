/*
 * The operations of a LAYER request: what Node cannot ask the kernel for, done in a child of the spawner.
 *
 * Always true: every path lies strictly below the spawner's own directory (checked before the child is started), and
 * nothing inside a tree is followed. A child holds a shared lock on that directory and dies with the spawner, so
 * "settle", which takes the lock for itself, returns only when nothing of an earlier spawner works there any more.
 */
#ifndef ATOLL_LAYER_H
#define ATOLL_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LAYER_ARGUMENTS_MAX 512
#define LAYER_RESULT_MAX 200

struct layer_request {
	char *operation;
	char *arguments[LAYER_ARGUMENTS_MAX];
	size_t count;
};

/* false: malformed. */
bool layer_parse(const uint8_t *body, size_t length, struct layer_request *request);
void layer_free(struct layer_request *request);
/* NULL, or why this cannot be asked for. `is_own` says whether a path is below the spawner's directory. */
const char *layer_refusal(const struct layer_request *request, bool (*is_own)(const char *path));
/* Child only: does it and reports. The exit status. */
int layer_run(const struct layer_request *request, const char *directory, pid_t spawner, int report);

/*
 * One operation each: 0 and perhaps a short text in `result`, or -1 with errno and the words of layer_say.
 */
int layer_copy(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_dress(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_size(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_clone_probe(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_flatten(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_subvolume(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_snapshot(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_branch(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_drop(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_quota_on(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_quota_simple(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_quota_limit(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_quota_known(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_quota_usage(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_referred(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_pool_allocate(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_pool_mount(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_pool_grow(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);
int layer_pool_unmount(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);

/* Remembers what failed; returns -1 and leaves errno as it is. */
int layer_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A decimal number from 1 on: 0 when it is none. */
uint64_t layer_number(const char *text);

#endif
