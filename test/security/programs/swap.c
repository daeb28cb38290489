/* Attacks on whoever resolves a path while it changes. */
#include "attack.h"

#include <fcntl.h>
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
		mkdir("dir", 0755);
		mkdir("dir/deep", 0755);
		put("dir/secret", "inside");
		put("dir/deep/secret", "inside");
		for (int i = 1; i < count; i++) {
			char name[32];
			snprintf(name, sizeof(name), "link%d", i);
			if (symlink(arguments[i], name) < 0 && errno != EEXIST)
				exit(3);
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
