/*
 * Subvolumes of btrfs and their quotas, by its ioctls.
 *
 * Always true: a subvolume is named by its parent's descriptor and its own name, so nothing is followed at the end of a
 * path. A snapshot is read-only from the moment it exists; a branch is a snapshot that can be written to.
 */
#include "layer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Since Linux 6.7; the headers may be older. */
#define ENABLE_SIMPLE 4
#define STATUS_SIMPLE (1ull << 3)

#define DIRECTORY_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* The directory that `path` is in, and its last name. */
static int open_parent(const char *path, char *name, size_t size)
{
	char parent[PATH_MAX];
	const char *slash = strrchr(path, '/');
	size_t length = slash == NULL ? 0 : (size_t)(slash - path);
	if (length == 0 || length >= sizeof(parent) || strlen(slash + 1) >= size) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(parent, path, length);
	parent[length] = 0;
	strcpy(name, slash + 1);
	return open(parent, DIRECTORY_FLAGS);
}

static bool is_btrfs(int directory)
{
	struct statfs info;
	return fstatfs(directory, &info) == 0 && info.f_type == BTRFS_SUPER_MAGIC;
}

int layer_subvolume(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	(void)result;
	struct btrfs_ioctl_vol_args_v2 request = { 0 };
	int parent = open_parent(arguments[0], request.name, sizeof(request.name));
	if (parent < 0 || ioctl(parent, BTRFS_IOC_SUBVOL_CREATE_V2, &request) < 0)
		return layer_say("cannot make the subvolume %.150s", arguments[0]);
	return 0;
}

static int subvolume_id(int directory, uint64_t *id)
{
	struct btrfs_ioctl_ino_lookup_args request = { .objectid = BTRFS_FIRST_FREE_OBJECTID };
	if (ioctl(directory, BTRFS_IOC_INO_LOOKUP, &request) < 0)
		return -1;
	*id = request.treeid;
	return 0;
}

/* The item of the quota tree for this subvolume; `size` bytes of it, all zero when there is none. */
static int quota_item(int directory, uint64_t id, uint32_t type, void *item, size_t size)
{
	struct btrfs_ioctl_search_args search = { 0 };
	struct btrfs_ioctl_search_header header;
	search.key = (struct btrfs_ioctl_search_key){
		.tree_id = BTRFS_QUOTA_TREE_OBJECTID,
		.min_type = type, .max_type = type,
		.min_offset = id, .max_offset = id,
		.max_transid = UINT64_MAX, .nr_items = 1,
	};
	memset(item, 0, size);
	if (ioctl(directory, BTRFS_IOC_TREE_SEARCH, &search) < 0)
		return -1;
	if (search.key.nr_items == 0)
		return 0;
	memcpy(&header, search.buf, sizeof(header));
	if (header.type == type && header.offset == id && header.len >= size)
		memcpy(item, search.buf + sizeof(header), size);
	return 0;
}

static int describe_quota(int directory, const char *path, char result[LAYER_RESULT_MAX])
{
	struct btrfs_qgroup_info_item used;
	struct btrfs_qgroup_limit_item limit;
	struct btrfs_ioctl_get_subvol_info_args info;
	if (ioctl(directory, BTRFS_IOC_GET_SUBVOL_INFO, &info) < 0)
		return layer_say("cannot open the subvolume %.150s", path);
	uint64_t id = info.treeid;
	if (quota_item(directory, id, BTRFS_QGROUP_INFO_KEY, &used, sizeof(used)) < 0 ||
	    quota_item(directory, id, BTRFS_QGROUP_LIMIT_KEY, &limit, sizeof(limit)) < 0)
		return layer_say("cannot read the quota of %.150s", path);
	uint64_t most = (limit.flags & BTRFS_QGROUP_LIMIT_MAX_RFER) != 0 ? limit.max_rfer : 0;
	snprintf(result, LAYER_RESULT_MAX, "%llu %llu %llu %llu", (unsigned long long)used.rfer,
		 (unsigned long long)used.excl, (unsigned long long)most, (unsigned long long)info.ctransid);
	return 0;
}

static int take(char *const *arguments, uint64_t flags, int *source)
{
	struct btrfs_ioctl_vol_args_v2 request = { .flags = flags };
	*source = open(arguments[0], DIRECTORY_FLAGS);
	if (*source < 0)
		return layer_say("cannot open the subvolume %.150s", arguments[0]);
	request.fd = *source;
	int parent = open_parent(arguments[1], request.name, sizeof(request.name));
	if (parent < 0 || ioctl(parent, BTRFS_IOC_SNAP_CREATE_V2, &request) < 0)
		return layer_say("cannot take a snapshot as %.150s", arguments[1]);
	return 0;
}

/* What the quota says of the source as of that instant: a snapshot commits it. */
int layer_snapshot(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	int source;
	return take(arguments, BTRFS_SUBVOL_RDONLY, &source) < 0 ? -1 : describe_quota(source, arguments[0], result);
}

int layer_branch(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	(void)result;
	int source;
	return take(arguments, 0, &source);
}

/* Its space comes back as the file system's cleaner gets to it. What is not there is dropped. */
int layer_drop(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	(void)result;
	struct btrfs_ioctl_vol_args request = { 0 };
	int parent = open_parent(arguments[0], request.name, sizeof(request.name));
	if (parent >= 0 && ioctl(parent, BTRFS_IOC_SNAP_DESTROY, &request) == 0)
		return 0;
	return errno == ENOENT ? 0 : layer_say("cannot remove the subvolume %.150s", arguments[0]);
}

/* Turns quotas on if they are off, and waits for the count. Which kind is on is the answer. */
static int quota_on(const char *path, uint64_t command, char result[LAYER_RESULT_MAX])
{
	struct btrfs_ioctl_quota_ctl_args request = { .cmd = command };
	struct btrfs_qgroup_status_item status;
	int directory = open(path, DIRECTORY_FLAGS);
	if (directory < 0 || !is_btrfs(directory))
		return layer_say("%.150s is not on btrfs", path);
	if (ioctl(directory, BTRFS_IOC_QUOTA_CTL, &request) < 0)
		return layer_say("cannot turn quotas on in %.150s", path);
	if (ioctl(directory, BTRFS_IOC_QUOTA_RESCAN_WAIT) < 0)
		return layer_say("cannot wait for the count of %.150s", path);
	if (quota_item(directory, 0, BTRFS_QGROUP_STATUS_KEY, &status, sizeof(status)) < 0)
		return layer_say("cannot read the quotas of %.150s", path);
	snprintf(result, LAYER_RESULT_MAX, "%s", (status.flags & STATUS_SIMPLE) != 0 ? "simple" : "full");
	return 0;
}

int layer_quota_on(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	return quota_on(arguments[0], BTRFS_QUOTA_CTL_ENABLE, result);
}

/* Those that count by who wrote, where the kernel has them. */
int layer_quota_simple(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	if (quota_on(arguments[0], ENABLE_SIMPLE, result) == 0)
		return 0;
	return errno == EINVAL || errno == EOPNOTSUPP ? quota_on(arguments[0], BTRFS_QUOTA_CTL_ENABLE, result) : -1;
}

/* Asked for from above: the change itself would be charged to a subvolume that may be full. */
int layer_quota_limit(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	(void)result;
	struct btrfs_ioctl_qgroup_limit_args request = {
		.lim = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = layer_number(arguments[1]) },
	};
	char name[NAME_MAX + 1];
	int directory = open(arguments[0], DIRECTORY_FLAGS), parent = open_parent(arguments[0], name, sizeof(name));
	uint64_t id;
	if (directory < 0 || parent < 0 || subvolume_id(directory, &id) < 0)
		return layer_say("cannot open the subvolume %.150s", arguments[0]);
	request.qgroupid = id;
	if (ioctl(parent, BTRFS_IOC_QGROUP_LIMIT, &request) < 0)
		return layer_say("cannot limit the subvolume %.150s", arguments[0]);
	return 0;
}

static int quota_of(const char *path, bool sync, char result[LAYER_RESULT_MAX])
{
	int directory = open(path, DIRECTORY_FLAGS);
	if (directory < 0 || !is_btrfs(directory))
		return layer_say("cannot open the subvolume %.150s", path);
	if (sync && ioctl(directory, BTRFS_IOC_SYNC) < 0)
		return layer_say("cannot sync %.150s", path);
	return describe_quota(directory, path, result);
}

/* Bytes it is charged with, those that only it refers to, its limit (0: none), and the transaction that changed it last;
 * as of a sync that is done first. */
int layer_quota_usage(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	return quota_of(arguments[0], true, result);
}

/* The same as it was last written: of a snapshot, which nobody writes to, that is enough. */
int layer_quota_known(char *const *arguments, size_t count, char result[LAYER_RESULT_MAX])
{
	(void)count;
	return quota_of(arguments[0], false, result);
}
