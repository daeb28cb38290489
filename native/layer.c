/* See layer.h. */
#include "layer.h"

#include "bytes.h"
#include "kernel.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int operate(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);

static int sync_tree(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX]);

static const struct operation {
	const char *name;
	size_t paths;   /* this many arguments are paths, the first ones */
	size_t numbers; /* and this many follow that are numbers */
	bool more;      /* more paths may follow */
	operate *run;   /* NULL: done when the lock is held */
} operations[] = {
	{ "settle", 0, 0, false, NULL },
	{ "sync", 1, 0, false, sync_tree },
	{ "copy", 2, 0, false, layer_copy },
	{ "dress", 2, 0, false, layer_dress },
	{ "size", 1, 0, false, layer_size },
	{ "clone-probe", 1, 0, false, layer_clone_probe },
	{ "flatten", 2, 0, true, layer_flatten },
	{ "subvolume", 1, 0, false, layer_subvolume },
	{ "snapshot", 2, 0, false, layer_snapshot },
	{ "branch", 2, 0, false, layer_branch },
	{ "drop", 1, 0, false, layer_drop },
	{ "quota-on", 1, 0, false, layer_quota_on },
	{ "quota-simple", 1, 0, false, layer_quota_simple },
	{ "quota-limit", 1, 1, false, layer_quota_limit },
	{ "quota-usage", 1, 0, false, layer_quota_usage },
	{ "quota-known", 1, 0, false, layer_quota_known },
	{ "referred", 1, 0, true, layer_referred },
	{ "pool-allocate", 1, 1, false, layer_pool_allocate },
	{ "pool-mount", 2, 0, false, layer_pool_mount },
	{ "pool-grow", 2, 1, false, layer_pool_grow },
	{ "pool-unmount", 1, 0, false, layer_pool_unmount },
};

static char explanation[200];

int layer_say(const char *format, ...)
{
	int error = errno;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(explanation, sizeof(explanation), format, arguments);
	va_end(arguments);
	errno = error;
	return -1;
}

uint64_t layer_number(const char *text)
{
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	return text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 ? 0 : value;
}

static const struct operation *find_operation(const char *name)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		if (strcmp(operations[i].name, name) == 0)
			return &operations[i];
	return NULL;
}

bool layer_parse(const uint8_t *body, size_t length, struct layer_request *request)
{
	struct fields fields = { .at = body, .end = body + length, .repeatable = 1u << 2 };
	struct field field;
	int found;
	*request = (struct layer_request){ 0 };
	while ((found = fields_next(&fields, &field)) > 0) {
		char *text = field_text(&field);
		if (text == NULL || (field.tag != 1 && field.tag != 2) || request->count == LAYER_ARGUMENTS_MAX) {
			free(text);
			return false;
		}
		if (field.tag == 1)
			request->operation = text;
		else
			request->arguments[request->count++] = text;
	}
	return found == 0 && request->operation != NULL;
}

void layer_free(struct layer_request *request)
{
	free(request->operation);
	for (size_t i = 0; i < request->count; i++)
		free(request->arguments[i]);
}

const char *layer_refusal(const struct layer_request *request, bool (*is_own)(const char *path))
{
	const struct operation *operation = find_operation(request->operation);
	if (operation == NULL)
		return "there is no such operation on layers";
	size_t least = operation->paths + operation->numbers;
	if (request->count < least || (request->count > least && !operation->more))
		return "the operation takes another number of arguments";
	for (size_t i = 0; i < request->count; i++) {
		bool is_number = i >= operation->paths && i < least;
		if (is_number ? layer_number(request->arguments[i]) == 0 : !is_own(request->arguments[i]))
			return is_number ? "an argument is not a number" : "only what lies below the spawner's own directory can be worked on";
	}
	return NULL;
}

static int sync_tree(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	(void)result;
	int directory = open(arguments[0], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (directory < 0 || syncfs(directory) < 0)
		return layer_say("cannot sync the file system of %.100s", arguments[0]);
	close(directory);
	return 0;
}

/* Walks keep descriptors of upper levels open. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max < 16384 ? limit.rlim_max : 16384;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int layer_run(const struct layer_request *request, const char *directory, pid_t spawner, int report)
{
	const struct operation *operation = find_operation(request->operation);
	char result[LAYER_RESULT_MAX] = "";
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != spawner)
		return 1;
	umask(0);
	raise_descriptor_limit();
	int lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lock < 0 || flock(lock, operation->run == NULL ? LOCK_EX : LOCK_SH) < 0) {
		report_failure(report, errno, request->operation, "cannot lock %.150s", directory);
		return 1;
	}
	int done = operation->run == NULL ? 0 : operation->run(request->arguments, request->count, result), error = errno;
	/* Whoever hears of the end may unmount what this child still has open. */
	kernel_close_range((unsigned)report + 1, ~0u);
	if (done < 0)
		report_failure(report, error, request->operation, "%s", explanation);
	else
		done = report_result(report, result);
	return done < 0;
}
