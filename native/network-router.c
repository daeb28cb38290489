/*
 * Router namespaces, and the tools that set them up: `ip` and `nft`, with what they are to do on their standard input.
 *
 * Always true: a router namespace is held by a mount on its name below /run/netns, as `ip netns` does it, so that it
 * outlives the node and can be looked at by name. It is open for us only when the mount is there: an empty file that a
 * crash left is mounted over. Its switches for forwarding are its own; the machine's are not touched here.
 */
#include "network.h"

#include "bytes.h"
#include "network-names.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMESPACE_FILES 0x6e736673 /* the file system of namespaces, in statfs */

enum { TAG_TOOL = 1, TAG_ROUTER, TAG_INPUT };
enum { TOOL_NFT = 1, TOOL_IP = 2 };

static int failed(int report, const char *step, const char *sentence)
{
	report_failure(report, errno, step, "%s", sentence);
	return 1;
}

static bool is_open(const char *path)
{
	struct statfs info;
	return statfs(path, &info) == 0 && info.f_type == NAMESPACE_FILES;
}

static int write_switch(const char *path)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);
	if (file < 0)
		return -1;
	ssize_t count = write(file, "1", 1);
	int error = errno;
	close(file);
	errno = error;
	return count == 1 ? 0 : -1;
}

static int raise_loopback(void)
{
	struct ifreq loopback = { .ifr_name = "lo" };
	int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (probe < 0)
		return -1;
	loopback.ifr_flags = IFF_UP | IFF_RUNNING;
	int result = ioctl(probe, SIOCSIFFLAGS, &loopback);
	close(probe);
	return result;
}

int network_serve_router(const char *path, int report)
{
	errno = EINVAL;
	if (!network_is_router(path))
		return failed(report, "request", "the name is not one of a router namespace of ours");
	if (is_open(path))
		return report_send(report, RECORD_DONE, 0) < 0;
	if (mkdir(ROUTER_DIRECTORY, 0755) < 0 && errno != EEXIST)
		return failed(report, "router namespace", "cannot make " ROUTER_DIRECTORY);
	int file = open(path, O_CREAT | O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0444);
	if (file < 0)
		return failed(report, "router namespace", "cannot make the file that names it");
	close(file);
	if (unshare(CLONE_NEWNET) < 0)
		return failed(report, "router namespace", "cannot make a network namespace");
	/* A kernel without IPv6 routes IPv4 only. */
	if (raise_loopback() < 0 || write_switch("/proc/sys/net/ipv4/ip_forward") < 0 ||
	    (write_switch("/proc/sys/net/ipv6/conf/all/forwarding") < 0 && errno != ENOENT))
		return failed(report, "router namespace", "cannot turn on forwarding in it");
	if (mount("/proc/self/ns/net", path, NULL, MS_BIND, NULL) < 0)
		return failed(report, "router namespace", "cannot hold it by its name");
	return report_send(report, RECORD_DONE, 0) < 0;
}

int network_serve_close(const char *path, int report)
{
	errno = EINVAL;
	if (!network_is_router(path))
		return failed(report, "request", "the name is not one of a router namespace of ours");
	if (is_open(path) && umount2(path, MNT_DETACH) < 0)
		return failed(report, "router namespace", "cannot let go of it");
	if (unlink(path) < 0 && errno != ENOENT)
		return failed(report, "router namespace", "cannot remove its name");
	return report_send(report, RECORD_DONE, 0) < 0;
}

/* Child only. */
static _Noreturn void run_tool(uint8_t tool, int input, int output)
{
	static const char *const directories[] = { "/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin" };
	static char *const nft[] = { "nft", "-f", "-", NULL }, *const ip[] = { "ip", "-batch", "-", NULL };
	static char *const environment[] = { "LC_ALL=C", NULL };
	char path[64];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
		_exit(126);
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", directories[i], tool == TOOL_NFT ? "nft" : "ip");
		execve(path, tool == TOOL_NFT ? nft : ip, environment);
	}
	_exit(127);
}

static bool parse_tool(const uint8_t *body, size_t length, uint8_t *tool, char **router, struct field *text)
{
	struct fields fields = { .at = body, .end = body + length };
	struct field field;
	int more;
	while ((more = fields_next(&fields, &field)) > 0) {
		if (field.tag == TAG_TOOL && field.length == 1)
			*tool = field.bytes[0];
		else if (field.tag == TAG_ROUTER && (*router = field_text(&field)) != NULL)
			continue;
		else if (field.tag == TAG_INPUT)
			*text = field;
		else
			return false;
	}
	return more == 0 && (*tool == TOOL_NFT || *tool == TOOL_IP) && text->bytes != NULL && (*router == NULL || network_is_router(*router));
}

int network_serve_tool(const uint8_t *body, size_t length, int report)
{
	uint8_t tool = 0;
	char *router = NULL, said[200] = "";
	struct field text = { 0 };
	int status;
	errno = EINVAL;
	if (!parse_tool(body, length, &tool, &router, &text))
		return failed(report, "request", "not a request for a tool");
	const char *name = tool == TOOL_NFT ? "nft" : "ip";
	int namespace = router == NULL ? -1 : open(router, O_RDONLY | O_CLOEXEC);
	if (router != NULL && (namespace < 0 || setns(namespace, CLONE_NEWNET) < 0))
		return failed(report, "router namespace", "cannot be entered");
	int input = memfd_create("input", MFD_CLOEXEC), output = memfd_create("output", MFD_CLOEXEC);
	if (input < 0 || output < 0 || write(input, text.bytes, text.length) != (ssize_t)text.length || lseek(input, 0, SEEK_SET) < 0)
		return failed(report, name, "its input cannot be written");
	pid_t child = fork();
	if (child < 0)
		return failed(report, name, "the machine refuses another process");
	if (child == 0)
		run_tool(tool, input, output);
	if (waitpid(child, &status, 0) != child)
		return failed(report, name, "it could not be waited for");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return report_send(report, RECORD_DONE, 0) < 0;
	ssize_t count = pread(output, said, sizeof(said) - 1, 0);
	said[count < 0 ? 0 : count] = 0;
	errno = WIFEXITED(status) && WEXITSTATUS(status) == 127 ? ENOENT : EIO;
	return failed(report, name, errno == ENOENT ? "the program is not installed" : said);
}
