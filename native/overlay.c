/*
 * Id-mapped layers and the overlay made of them.
 *
 * On disk every layer holds ids from 0. Each is cloned and id-mapped with the sandbox's own user namespace, so inside
 * everything belongs to the sandbox's root and users, and on disk new files get ids from 0 again.
 *
 * Always true: the overlay is mounted with the file-system ids of the shifted root. Plain root has no id in the mapped
 * upper directory; the kernel then mounts the overlay read-only without saying so, which is why the result is checked.
 */
#include "overlay.h"

#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static char explanation[256];

const char *overlay_explain(void)
{
	return explanation;
}

int idmap_tree(int tree, int user_namespace, uint64_t attributes)
{
	struct mount_attributes attr = { .set = ATTR_IDMAP | attributes, .user_namespace = (uint64_t)user_namespace };
	return kernel_mount_setattr(tree, "", AT_EMPTY, &attr);
}

/* Id-maps a detached clone and puts it at the new directory `point`. Takes `tree`. */
static const char *attach(int tree, const char *what, const char *point, int user_namespace, uint64_t attributes)
{
	snprintf(explanation, sizeof(explanation), "cannot make an id-mapped mount of %.200s", what);
	if (tree < 0 || idmap_tree(tree, user_namespace, attributes) < 0)
		return "id-mapped mount";
	if (mkdir(point, 0755) < 0 || kernel_move_mount(tree, "", AT_FDCWD, point, MOVE_MOUNT_FROM_EMPTY) < 0)
		return "id-mapped mount";
	close(tree);
	return NULL;
}

/* setfsuid takes the file capabilities out of the effective set; overlayfs keeps the mounter's, so they come back. */
int overlay_take_ids(uint32_t id)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	if (syscall(SYS_capget, &header, data) < 0)
		return -1;
	setfsgid(id);
	setfsuid(id);
	data[0].effective = data[0].permitted;
	data[1].effective = data[1].permitted;
	return (int)syscall(SYS_capset, &header, data);
}

static const char *mount_overlay(char *const *layers, size_t count, const char *prefix, const char *upper,
				 const char *work, const char *point, const struct create_request *request, int user_namespace)
{
	char options[4096], name[32];
	const char *own = request->writable == NULL ? OWN_POINT : WRITABLE_POINT;
	int used = snprintf(options, sizeof(options), "upperdir=%s/%s,workdir=%s/%s,redirect_dir=on,index=off,metacopy=off,lowerdir=", own, upper, own, work);
	for (size_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "%s%zu", prefix, i);
		const char *failed = attach(kernel_open_tree(AT_FDCWD, layers[i], CLONE_TREE), layers[i], name, user_namespace, ATTR_NODEV);
		if (failed != NULL)
			return failed;
		used += snprintf(options + used, sizeof(options) - (size_t)used, "%s%s", i > 0 ? ":" : "", name);
		if ((size_t)used >= sizeof(options)) {
			errno = E2BIG;
			snprintf(explanation, sizeof(explanation), "%zu layers are more than one mount can name", count);
			return "overlay";
		}
	}
	snprintf(explanation, sizeof(explanation), "cannot become the file-system owner of the upper layer");
	if (overlay_take_ids(request->uid_base) < 0)
		return "overlay";
	snprintf(explanation, sizeof(explanation), "cannot mount the overlay of %zu layers", count);
	int result = mount("overlay", point, "overlay", MS_NODEV, options);
	int error = errno;
	overlay_take_ids(0);
	errno = error;
	if (result < 0)
		return "overlay";
	struct statvfs info;
	snprintf(explanation, sizeof(explanation), "the overlay came out read-only: %s and %s cannot be written with the sandbox's ids", upper, work);
	if (statvfs(point, &info) < 0)
		return "overlay";
	if ((info.f_flag & ST_RDONLY) != 0) {
		errno = EROFS;
		return "overlay";
	}
	return NULL;
}

const char *overlay_mount(const struct create_request *request, struct own_trees own, pid_t init)
{
	char path[64];
	snprintf(explanation, sizeof(explanation), "cannot open init's user namespace");
	snprintf(path, sizeof(path), "/proc/%d/ns/user", init);
	int user_namespace = open(path, O_RDONLY | O_CLOEXEC);
	if (user_namespace < 0)
		return "user namespace";
	return overlay_mount_in(request, own, user_namespace);
}

const char *overlay_mount_in(const struct create_request *request, struct own_trees own, int user_namespace)
{
	struct stat info;
	const char *failed = attach(own.directory, "DIRECTORY", OWN_POINT, user_namespace, ATTR_NODEV);
	if (failed == NULL)
		failed = attach(own.shared, "DIRECTORY/shared", SHARED_POINT, user_namespace, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC);
	if (failed == NULL && request->writable != NULL)
		failed = attach(kernel_open_tree(AT_FDCWD, request->writable, CLONE_TREE), "WRITABLE", WRITABLE_POINT, user_namespace, ATTR_NODEV);
	if (failed != NULL)
		return failed;
	if (mkdir(ROOT_POINT, 0755) < 0)
		return "overlay";
	failed = mount_overlay(request->layers, request->layer_count, "l", "upper", "work", ROOT_POINT, request, user_namespace);
	if (failed != NULL || request->usr_layer_count == 0)
		return failed;
	snprintf(explanation, sizeof(explanation), "no layer of / has a real directory /usr to mount on");
	if (lstat(ROOT_POINT "/usr", &info) < 0)
		return "usr";
	if (!S_ISDIR(info.st_mode)) {
		errno = ENOTDIR;
		return "usr";
	}
	return mount_overlay(request->usr_layers, request->usr_layer_count, "k", "usr-upper", "usr-work", ROOT_POINT "/usr", request, user_namespace);
}
