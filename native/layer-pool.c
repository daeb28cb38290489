/*
 * A pool: a file with a btrfs in it, mounted through a loop device that goes when the last user of the mount does.
 *
 * Always true: one file has one loop device. A second one would give the kernel the same file system twice and destroy
 * it; so a device that already has the file is used, which it may have because a sandbox still holds a mount that is
 * gone from our own view.
 */
#include "layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Another process may take the device that was free a moment ago. */
#define ATTEMPTS 64
#define DEVICE_NAME 32
#define BUSY_ATTEMPTS 100
#define BUSY_PAUSE_US 20000

static int open_image(const char *path, struct stat *info)
{
	int image = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (image < 0 || fstat(image, info) < 0)
		return layer_say("cannot open %.150s", path);
	if (!S_ISREG(info->st_mode)) {
		errno = EINVAL;
		return layer_say("%.150s is not a file", path);
	}
	return image;
}

/* The device that has this file: a descriptor and its name, or -1 when there is none. */
static int find_device(const struct stat *image, char name[DEVICE_NAME])
{
	DIR *list = opendir("/dev");
	struct dirent *entry;
	struct loop_info64 info;
	while (list != NULL && (entry = readdir(list)) != NULL) {
		if (strncmp(entry->d_name, "loop", 4) != 0 || entry->d_name[4] < '0' || entry->d_name[4] > '9' || strlen(entry->d_name) > 16)
			continue;
		snprintf(name, DEVICE_NAME, "/dev/%.16s", entry->d_name);
		int device = open(name, O_RDWR | O_CLOEXEC);
		if (device < 0)
			continue;
		if (ioctl(device, LOOP_GET_STATUS64, &info) == 0 && info.lo_inode == image->st_ino && info.lo_device == image->st_dev) {
			closedir(list);
			return device;
		}
		close(device);
	}
	if (list != NULL)
		closedir(list);
	return -1;
}

static int attach_device(int image, char name[DEVICE_NAME])
{
	struct loop_config config = { .fd = (uint32_t)image, .info = { .lo_flags = LO_FLAGS_AUTOCLEAR } };
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (control < 0)
		return layer_say("cannot open /dev/loop-control");
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE);
		if (number < 0)
			return layer_say("there is no free loop device");
		snprintf(name, DEVICE_NAME, "/dev/loop%d", number);
		int device = open(name, O_RDWR | O_CLOEXEC);
		if (device < 0)
			return layer_say("cannot open %s", name);
		if (ioctl(device, LOOP_CONFIGURE, &config) == 0) {
			close(control);
			return device;
		}
		if (errno != EBUSY)
			return layer_say("cannot attach the pool's file to %s", name);
		close(device);
	}
	return layer_say("others keep taking the free loop devices");
}

/* Whether the top of a btrfs is mounted at `point`, and from which device. */
static bool mounted_from(const char *point, char device[DEVICE_NAME])
{
	struct stat here, above;
	struct statfs system;
	char parent[4096];
	struct btrfs_ioctl_dev_info_args info = { .devid = 1 };
	snprintf(parent, sizeof(parent), "%s/..", point);
	if (stat(point, &here) < 0 || stat(parent, &above) < 0 || statfs(point, &system) < 0)
		return false;
	if (system.f_type != BTRFS_SUPER_MAGIC || here.st_dev == above.st_dev || here.st_ino != 256)
		return false;
	device[0] = 0;
	int directory = open(point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory >= 0 && ioctl(directory, BTRFS_IOC_DEV_INFO, &info) == 0)
		snprintf(device, DEVICE_NAME, "%.31s", (const char *)info.path);
	if (directory >= 0)
		close(directory);
	return true;
}

int layer_pool_allocate(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	(void)result;
	int image = open(arguments[0], O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (image < 0)
		return layer_say("cannot make %.150s", arguments[0]);
	if (fallocate(image, 0, 0, (off_t)layer_number(arguments[1])) < 0 || fsync(image) < 0)
		return layer_say("cannot set %s bytes aside for %.100s", arguments[1], arguments[0]);
	return 0;
}

int layer_pool_mount(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	struct stat info;
	char name[DEVICE_NAME], mounted[DEVICE_NAME];
	int image = open_image(arguments[0], &info);
	if (image < 0)
		return -1;
	int device = find_device(&info, name);
	if (mounted_from(arguments[1], mounted)) {
		snprintf(result, LAYER_RESULT_MAX, "%s", mounted);
		if (device >= 0 && strcmp(mounted, name) == 0)
			return 0;
		errno = EBUSY;
		return layer_say("another file system (of %s) is mounted at %.100s", mounted, arguments[1]);
	}
	if (device < 0 && (device = attach_device(image, name)) < 0)
		return -1;
	snprintf(result, LAYER_RESULT_MAX, "%s", name);
	/* Discarding would give the blocks that were set aside back to the file system below. */
	if (mount(name, arguments[1], "btrfs", MS_NOSUID | MS_NODEV | MS_NOATIME, "nodiscard") < 0)
		return layer_say("cannot mount the btrfs in %.100s", arguments[0]);
	return 0;
}

int layer_pool_grow(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	(void)result;
	struct stat info;
	char name[DEVICE_NAME];
	struct btrfs_ioctl_vol_args resize = { .name = "max" };
	int image = open_image(arguments[0], &info);
	if (image < 0)
		return -1;
	if (fallocate(image, 0, 0, (off_t)layer_number(arguments[2])) < 0 || fsync(image) < 0)
		return layer_say("cannot set %s bytes aside for %.100s", arguments[2], arguments[0]);
	int device = find_device(&info, name);
	if (device < 0 || ioctl(device, LOOP_SET_CAPACITY, 0) < 0)
		return layer_say("cannot tell the loop device of %.100s its new size", arguments[0]);
	int directory = open(arguments[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0 || ioctl(directory, BTRFS_IOC_RESIZE, &resize) < 0)
		return layer_say("cannot let the btrfs at %.100s grow", arguments[1]);
	return 0;
}

int layer_pool_unmount(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	(void)result;
	char mounted[DEVICE_NAME];
	if (!mounted_from(arguments[0], mounted))
		return 0;
	/* A process that has just ended may hold it for a moment. */
	for (int attempt = 0; umount2(arguments[0], UMOUNT_NOFOLLOW) < 0; attempt++) {
		if (errno != EBUSY || attempt == BUSY_ATTEMPTS)
			return layer_say("cannot unmount %.150s", arguments[0]);
		usleep(BUSY_PAUSE_US);
	}
	return 0;
}
