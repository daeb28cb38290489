/*
 * Looks at a tree, and changes it as a script on stdin says, directly or through an overlay mounted in a mount namespace
 * of its own, which is gone when the program ends.
 *
 *   tree-tool raw DIRECTORY                            the tree as it lies on disk
 *   tree-tool view POINT UPPER WORK LOWER...           what overlayfs shows
 *   tree-tool deep DIRECTORY DEPTH                     makes a chain of directories, which no path may be able to name
 *   tree-tool hold FILE                                writes to an open file and to a mapping of it until it is killed
 *
 * A line of the script is an operation and its words; one that the file system refuses is passed over. At the end every
 * entry is printed on a line: path, type, mode, owner, times, size, a hash of the content, where data is, extended
 * attributes, and the first path of the same inode.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CHECK(call, what)                                             \
	do {                                                          \
		if ((call) < 0) {                                     \
			fprintf(stderr, "%s: %s\n", what, strerror(errno)); \
			exit(1);                                      \
		}                                                     \
	} while (0)

static void fill(const char *path, off_t offset, size_t size, unsigned seed, int flags)
{
	int file = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | flags, 0644);
	if (file < 0)
		return;
	for (size_t at = 0; at < size; at++) {
		unsigned char byte = (unsigned char)(seed * 31 + at * 7 + (at >> 8));
		if (pwrite(file, &byte, 1, offset + (off_t)at) != 1)
			break;
	}
	close(file);
}

static void remove_tree(const char *path)
{
	DIR *list = opendir(path);
	struct dirent *entry;
	char child[4096];
	while (list != NULL && (entry = readdir(list)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
		if (unlink(child) < 0)
			remove_tree(child);
	}
	if (list != NULL)
		closedir(list);
	if (rmdir(path) < 0)
		return;
}

static void set_time(const char *path, long seconds)
{
	struct timespec times[2] = { { .tv_sec = seconds, .tv_nsec = 1234567 }, { .tv_sec = seconds, .tv_nsec = 123456789 } };
	utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}

static void apply(char *line)
{
	char *words[6] = { 0 };
	size_t count = 0;
	for (char *word = strtok(line, " \n"); word != NULL && count < 6; word = strtok(NULL, " \n"))
		words[count++] = word;
	if (count < 2)
		return;
	const char *operation = words[0], *path = words[1], *more = words[2] == NULL ? "0" : words[2], *last = words[3] == NULL ? "0" : words[3];
	if (strcmp(operation, "mkdir") == 0)
		mkdir(path, 0755);
	else if (strcmp(operation, "file") == 0)
		fill(path, 0, strtoul(more, NULL, 10), (unsigned)strtoul(last, NULL, 10), O_CREAT | O_TRUNC);
	else if (strcmp(operation, "write") == 0)
		fill(path, (off_t)strtol(more, NULL, 10), 600, (unsigned)strtoul(last, NULL, 10), 0);
	else if (strcmp(operation, "grow") == 0 && truncate(path, (off_t)strtol(more, NULL, 10)) == 0)
		return;
	else if (strcmp(operation, "link") == 0 && link(path, more) == 0)
		return;
	else if (strcmp(operation, "symlink") == 0 && symlink(more, path) == 0)
		return;
	else if (strcmp(operation, "fifo") == 0)
		mkfifo(path, 0644);
	else if (strcmp(operation, "rename") == 0)
		rename(path, more);
	else if (strcmp(operation, "unlink") == 0)
		unlink(path);
	else if (strcmp(operation, "rmtree") == 0)
		remove_tree(path);
	else if (strcmp(operation, "chmod") == 0)
		chmod(path, (mode_t)strtoul(more, NULL, 8));
	else if (strcmp(operation, "chown") == 0 && lchown(path, (uid_t)strtoul(more, NULL, 10), (gid_t)strtoul(last, NULL, 10)) == 0)
		return;
	else if (strcmp(operation, "xattr") == 0)
		lsetxattr(path, more, last, strlen(last), 0);
	else if (strcmp(operation, "time") == 0)
		set_time(path, strtol(more, NULL, 10));
}

struct seen {
	dev_t device;
	ino_t inode;
	char *path;
};

static struct seen *seen;
static size_t seen_count;

static const char *first_path(const struct stat *info, const char *path)
{
	for (size_t i = 0; i < seen_count; i++)
		if (seen[i].device == info->st_dev && seen[i].inode == info->st_ino)
			return seen[i].path;
	seen = realloc(seen, (seen_count + 1) * sizeof(*seen));
	seen[seen_count] = (struct seen){ info->st_dev, info->st_ino, strdup(path) };
	return seen[seen_count++].path;
}

static void print_content(const char *path, off_t size)
{
	static unsigned char bytes[1 << 16];
	uint64_t hash = 1469598103934665603u;
	ssize_t count;
	int file = open(path, O_RDONLY | O_NOFOLLOW);
	CHECK(file, path);
	while ((count = read(file, bytes, sizeof(bytes))) > 0)
		for (ssize_t i = 0; i < count; i++)
			hash = (hash ^ bytes[i]) * 1099511628211u;
	printf(" hash=%016llx data=", (unsigned long long)hash);
	for (off_t at = 0; at < size;) {
		off_t data = lseek(file, at, SEEK_DATA);
		if (data < 0)
			break;
		off_t hole = lseek(file, data, SEEK_HOLE);
		printf("%lld-%lld,", (long long)data, (long long)hole);
		at = hole;
	}
	close(file);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void print_attributes(const char *path)
{
	char names[65536], value[4096], *sorted[256];
	size_t count = 0;
	ssize_t length = llistxattr(path, names, sizeof(names));
	for (char *name = names; length > 0 && name < names + length && count < 256; name += strlen(name) + 1)
		sorted[count++] = name;
	qsort(sorted, count, sizeof(*sorted), by_name);
	for (size_t i = 0; i < count; i++) {
		ssize_t size = lgetxattr(path, sorted[i], value, sizeof(value));
		printf(" %s=", sorted[i]);
		for (ssize_t at = 0; at < size; at++)
			printf("%02x", (unsigned char)value[at]);
	}
}

static void describe(const char *path)
{
	struct stat info;
	char child[8192], target[4096], *names[4096];
	size_t count = 0;
	CHECK(lstat(path, &info), path);
	printf("%s %o %u:%u %lld.%09ld", path, info.st_mode, info.st_uid, info.st_gid, (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
	if (S_ISREG(info.st_mode)) {
		printf(" size=%lld", (long long)info.st_size);
		print_content(path, info.st_size);
	} else if (S_ISLNK(info.st_mode)) {
		ssize_t length = readlink(path, target, sizeof(target) - 1);
		target[length < 0 ? 0 : length] = 0;
		printf(" -> %s", target);
	} else if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) {
		printf(" device=%u:%u", major(info.st_rdev), minor(info.st_rdev));
	}
	print_attributes(path);
	if (!S_ISDIR(info.st_mode)) {
		printf(" same=%s\n", first_path(&info, path));
		return;
	}
	printf("\n");
	DIR *list = opendir(path);
	struct dirent *entry;
	CHECK(list == NULL ? -1 : 0, path);
	while ((entry = readdir(list)) != NULL && count < 4096)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			names[count++] = strdup(entry->d_name);
	closedir(list);
	qsort(names, count, sizeof(*names), by_name);
	for (size_t i = 0; i < count; i++) {
		snprintf(child, sizeof(child), "%s/%s", path, names[i]);
		describe(child);
		free(names[i]);
	}
}

/* Layers get short names in a tmpfs: the options of a mount are one page. */
static void enter_overlay(char **words, int count)
{
	char options[4096], name[32];
	CHECK(unshare(CLONE_NEWNS), "unshare");
	CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
	CHECK(mount("tmpfs", words[0], "tmpfs", 0, "size=1m"), "tmpfs");
	CHECK(chdir(words[0]), "chdir");
	int used = snprintf(options, sizeof(options), "upperdir=%s,workdir=%s,redirect_dir=on,index=off,metacopy=off,lowerdir=", words[1], words[2]);
	for (int i = 3; i < count; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		CHECK(mkdir(name, 0755), name);
		CHECK(mount(words[i], name, NULL, MS_BIND, NULL), words[i]);
		used += snprintf(options + used, sizeof(options) - (size_t)used, "%s%s", i > 3 ? ":" : "", name);
	}
	CHECK(mkdir("root", 0755), "root");
	CHECK(mount("overlay", "root", "overlay", 0, options), "overlay");
	CHECK(chdir("root"), "chdir");
}

static void deepen(const char *path, unsigned long depth)
{
	CHECK(chdir(path), path);
	for (unsigned long level = 0; level < depth; level++) {
		CHECK(mkdir("d", 0755), "mkdir");
		CHECK(chdir("d"), "chdir");
	}
}

static void hold(const char *path)
{
	const size_t size = 4 << 20;
	int file = open(path, O_RDWR | O_CREAT, 0644);
	CHECK(file, path);
	CHECK(ftruncate(file, (off_t)size), path);
	char *mapping = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(mapping == MAP_FAILED ? -1 : 0, "mmap");
	for (size_t round = 0;; round++) {
		mapping[round * 4096 % size]++;
		CHECK(pwrite(file, &round, sizeof(round), (off_t)(round * 8 % size)), path);
		if (round == 64)
			printf("ready\n"), fflush(stdout);
		usleep(1000);
	}
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "hold") == 0)
		hold(argv[2]);
	if (argc == 4 && strcmp(argv[1], "deep") == 0) {
		deepen(argv[2], strtoul(argv[3], NULL, 10));
		return 0;
	}
	char line[16384];
	umask(022);
	if (argc == 3 && strcmp(argv[1], "raw") == 0)
		CHECK(chdir(argv[2]), argv[2]);
	else if (argc >= 6 && strcmp(argv[1], "view") == 0)
		enter_overlay(argv + 2, argc - 2);
	else
		return 2;
	while (fgets(line, sizeof(line), stdin) != NULL)
		apply(line);
	describe(".");
	return 0;
}
