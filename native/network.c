/* See network.h. */
#include "network.h"

#include "bytes.h"
#include "netlink.h"
#include "network-names.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Chosen by us, so that a whole batch can be written before the link is there. */
#define OUTER_INDEX 1000
#define INNER_INDEX 100

enum { TAG_NETNS = 1, TAG_CGROUP, TAG_SLOT, TAG_ALIAS, TAG_ADDRESS4, TAG_GATEWAY4, TAG_ADDRESS6 };

static const uint8_t gateway6[16] = { 0xfe, 0x80, [15] = 1 };

static bool take_bytes(const struct field *field, void *to, size_t size)
{
	if (field->length != size)
		return false;
	memcpy(to, field->bytes, size);
	return true;
}

static bool take(const struct field *field, struct network_link *link, char **cgroup)
{
	switch (field->tag) {
	case TAG_NETNS: return (link->netns = field_text(field)) != NULL;
	case TAG_CGROUP: return cgroup != NULL && (*cgroup = field_text(field)) != NULL;
	case TAG_SLOT: link->slot = field->length == 4 ? get_u32(field->bytes) : NETWORK_SLOTS; return field->length == 4;
	case TAG_ALIAS: return (link->alias = field_text(field)) != NULL;
	case TAG_ADDRESS4: return take_bytes(field, link->address4, 4);
	case TAG_GATEWAY4: return take_bytes(field, link->gateway4, 4);
	case TAG_ADDRESS6: link->has_address6 = 1; return take_bytes(field, link->address6, 16);
	default: return false;
	}
}

int network_parse(const uint8_t *body, size_t length, struct network_link *link, char **cgroup, const char **why)
{
	struct fields fields = { .at = body, .end = body + length };
	struct field field;
	const uint64_t required = 1u << TAG_NETNS | 1u << TAG_SLOT | 1u << TAG_ALIAS | 1u << TAG_ADDRESS4 | 1u << TAG_GATEWAY4;
	int more;
	*link = (struct network_link){ 0 };
	while ((more = fields_next(&fields, &field)) > 0)
		if (!take(&field, link, cgroup))
			return -1;
	if (more < 0 || (fields.seen & required) != required || (cgroup != NULL && (*cgroup == NULL || (*cgroup)[0] != '/')))
		return -1;
	*why = "NETNS must be a router namespace of ours, SLOT below the limit, ALIAS at most 64 bytes";
	return network_is_router(link->netns) && link->slot < NETWORK_SLOTS && strlen(link->alias) <= 64 ? 0 : EINVAL;
}

void network_free(struct network_link *link)
{
	free(link->netns);
	free(link->alias);
	*link = (struct network_link){ 0 };
}

/* The one process in CGROUP/init, or 0. */
static pid_t init_of(const char *cgroup)
{
	char path[4200];
	long pid = 0;
	snprintf(path, sizeof(path), "%s/init/cgroup.procs", cgroup);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return 0;
	if (fscanf(file, "%ld", &pid) != 1)
		pid = 0;
	fclose(file);
	return (pid_t)pid;
}

static bool is_same_file(int a, const char *b)
{
	struct stat left, right;
	return fstat(a, &left) < 0 || stat(b, &right) < 0 || (left.st_dev == right.st_dev && left.st_ino == right.st_ino);
}

/* The namespace is opened between two looks at the group: a pid that was reused meanwhile is in another one. */
static int open_sandbox(const char *cgroup)
{
	char path[64];
	pid_t pid = init_of(cgroup);
	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	int namespace = pid <= 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	if (namespace >= 0 && init_of(cgroup) == pid && !is_same_file(namespace, "/proc/self/ns/net"))
		return namespace;
	if (namespace >= 0)
		close(namespace);
	errno = ESRCH;
	return -1;
}

static void add_address(struct netlink_batch *batch, int family, int index, const void *address, size_t size, unsigned char prefix)
{
	struct ifaddrmsg header = {
		.ifa_family = (unsigned char)family, .ifa_prefixlen = prefix, .ifa_index = (unsigned)index,
		.ifa_flags = family == AF_INET6 ? IFA_F_NODAD : 0,
	};
	netlink_begin(batch, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &header, sizeof(header));
	netlink_add(batch, IFA_LOCAL, address, size);
	netlink_add(batch, IFA_ADDRESS, address, size);
}

/* Without an address: the default route. Without a gateway: on the link itself. */
static void add_route(struct netlink_batch *batch, int family, int index, const void *address, const void *gateway)
{
	size_t size = family == AF_INET6 ? 16 : 4;
	struct rtmsg header = {
		.rtm_family = (unsigned char)family, .rtm_dst_len = address == NULL ? 0 : (unsigned char)(size * 8), .rtm_table = RT_TABLE_MAIN,
		.rtm_protocol = RTPROT_STATIC, .rtm_type = RTN_UNICAST,
		.rtm_scope = gateway == NULL && family == AF_INET ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE,
	};
	netlink_begin(batch, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &header, sizeof(header));
	if (address != NULL)
		netlink_add(batch, RTA_DST, address, size);
	if (gateway != NULL)
		netlink_add(batch, RTA_GATEWAY, gateway, size);
	netlink_add_u32(batch, RTA_OIF, (uint32_t)index);
}

static void add_pair(struct netlink_batch *batch, const char *name, int outer, int sandbox)
{
	struct ifinfomsg header = { .ifi_index = outer, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
	/* Down: the kernel refuses to raise a peer before the pair is whole. */
	struct ifinfomsg peer = { .ifi_index = INNER_INDEX };
	netlink_begin(batch, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &header, sizeof(header));
	netlink_add(batch, IFLA_IFNAME, name, strlen(name) + 1);
	size_t info = netlink_nest(batch, IFLA_LINKINFO, NULL, 0);
	netlink_add(batch, IFLA_INFO_KIND, "veth", 5);
	size_t data = netlink_nest(batch, IFLA_INFO_DATA, NULL, 0);
	size_t inner = netlink_nest(batch, VETH_INFO_PEER, &peer, sizeof(peer));
	netlink_add(batch, IFLA_IFNAME, "eth0", 5);
	netlink_add_u32(batch, IFLA_NET_NS_FD, (uint32_t)sandbox);
	netlink_end_nest(batch, inner);
	netlink_end_nest(batch, data);
	netlink_end_nest(batch, info);
}

static int remove_link(const char *name)
{
	struct netlink_batch batch = { 0 };
	struct ifinfomsg header = { 0 };
	unsigned refused;
	netlink_begin(&batch, RTM_DELLINK, 0, &header, sizeof(header));
	netlink_add(&batch, IFLA_IFNAME, name, strlen(name) + 1);
	return netlink_send(&batch, &refused) < 0 && errno != ENODEV ? -1 : 0;
}

/* In the router: the pair, its name for a person, and the routes that make the sandbox's addresses its own. */
static int build_outer(const struct network_link *link, int sandbox)
{
	char name[IFNAMSIZ];
	int index = OUTER_INDEX + (int)link->slot;
	struct ifinfomsg named = { .ifi_index = index };
	struct netlink_batch pair = { 0 }, rest = { 0 };
	unsigned refused;
	snprintf(name, sizeof(name), "s%u", link->slot);
	add_pair(&pair, name, index, sandbox);
	int result = netlink_send(&pair, &refused);
	if (result < 0 && (errno == EEXIST || errno == EBUSY) && remove_link(name) == 0)
		result = netlink_send(&pair, &refused);
	if (result < 0)
		return -1;
	netlink_begin(&rest, RTM_NEWLINK, 0, &named, sizeof(named));
	netlink_add(&rest, IFLA_IFALIAS, link->alias, strlen(link->alias) + 1);
	add_route(&rest, AF_INET, index, link->address4, NULL);
	if (link->has_address6) {
		add_address(&rest, AF_INET6, index, gateway6, 16, 64);
		add_route(&rest, AF_INET6, index, link->address6, NULL);
	}
	if (netlink_send(&rest, &refused) == 0)
		return 0;
	int error = errno;
	remove_link(name);
	errno = error;
	return -1;
}

static int build_inner(const struct network_link *link)
{
	struct ifinfomsg up = { .ifi_index = INNER_INDEX, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
	struct netlink_batch batch = { 0 };
	unsigned refused;
	netlink_begin(&batch, RTM_NEWLINK, 0, &up, sizeof(up));
	add_address(&batch, AF_INET, INNER_INDEX, link->address4, 4, 32);
	add_route(&batch, AF_INET, INNER_INDEX, link->gateway4, NULL);
	add_route(&batch, AF_INET, INNER_INDEX, NULL, link->gateway4);
	if (link->has_address6) {
		add_address(&batch, AF_INET6, INNER_INDEX, link->address6, 16, 128);
		add_route(&batch, AF_INET6, INNER_INDEX, NULL, gateway6);
	}
	return netlink_send(&batch, &refused);
}

const char *network_attach(const struct network_link *link, const char *cgroup)
{
	char name[IFNAMSIZ];
	int sandbox = open_sandbox(cgroup);
	int router = open(link->netns, O_RDONLY | O_CLOEXEC);
	if (sandbox < 0)
		return "network namespace of the sandbox";
	if (router < 0 || is_same_file(sandbox, link->netns) || setns(router, CLONE_NEWNET) < 0)
		return "router namespace";
	if (build_outer(link, sandbox) < 0)
		return "network link";
	if (setns(sandbox, CLONE_NEWNET) == 0 && build_inner(link) == 0)
		return NULL;
	int error = errno;
	snprintf(name, sizeof(name), "s%u", link->slot);
	if (setns(router, CLONE_NEWNET) == 0)
		remove_link(name);
	errno = error;
	return "addresses in the sandbox";
}

int network_serve_attach(const uint8_t *body, size_t length, int report)
{
	struct network_link link;
	char *cgroup = NULL;
	const char *why = "malformed", *failed = "request";
	int refused = network_parse(body, length, &link, &cgroup, &why);
	errno = refused > 0 ? refused : EINVAL;
	if (refused == 0 && (failed = network_attach(&link, cgroup)) == NULL)
		return report_send(report, RECORD_DONE, 0) < 0;
	report_failure(report, errno, failed, "%s", refused == 0 ? "the sandbox could not be given a network" : why);
	return 1;
}
