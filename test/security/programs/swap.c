/* Attacks on whoever resolves a path while it changes. */
#include "attack.h"

#include <fcntl.h>
#include <ftw.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>

static void put(const char *path, const char *content)
{
	int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
	if (file < 0)
		return;
	if (write(file, content, strlen(content)) < 0)
		exit(2);
	close(file);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
	(void)info, (void)kind, (void)place;
	remove(path);
	return 0;
}

/* A directory under this name, and not a link that an exchange left there. */
static void put_directory(const char *name)
{
	struct stat info;
	if (lstat(name, &info) == 0 && S_ISLNK(info.st_mode))
		unlink(name);
	mkdir(name, 0755);
}

/*
 * A symlink to `target` under this name. When somebody removes `dir` while it is the link, the directory stays behind under the link's name: it is
 * removed, or soon only directories would be exchanged for directories.
 */
static void put_link(const char *target, const char *name)
{
	struct stat info;
	if (lstat(name, &info) == 0 && !S_ISLNK(info.st_mode))
		nftw(name, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (symlink(target, name) < 0 && errno != EEXIST)
		exit(3);
}

/*
 * swap DIRECTORY TARGET…: for ever, DIRECTORY/dir is a directory and a symlink to each TARGET in turn, exchanged in one step. What somebody
 * removes is made again.
 */
static void swap(int count, char **arguments)
{
	if (count < 2 || chdir(arguments[0]) < 0)
		exit(2);
	said("ready", 0);
	for (unsigned long round = 0;; round++) {
		put_directory("dir");
		put_directory("dir/deep");
		put("dir/secret", "inside");
		put("dir/deep/secret", "inside");
		for (int i = 1; i < count; i++) {
			char name[32];
			snprintf(name, sizeof(name), "link%d", i);
			put_link(arguments[i], name);
			/* By descriptor: the attack must not itself move what a link leads to into the tree. */
			int directory = open("dir", O_PATH | O_DIRECTORY | O_NOFOLLOW);
			for (int turn = 0; turn < 8; turn++) {
				renameat2(AT_FDCWD, "dir", AT_FDCWD, name, RENAME_EXCHANGE);
				renameat2(AT_FDCWD, "dir", AT_FDCWD, name, RENAME_EXCHANGE);
				renameat2(directory, "deep", AT_FDCWD, name, RENAME_EXCHANGE);
				renameat2(directory, "deep", AT_FDCWD, name, RENAME_EXCHANGE);
			}
			close(directory);
		}
	}
}

const struct attack swap_attacks[] = { { "swap", swap }, { NULL, NULL } };
