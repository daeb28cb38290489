/* Capabilities; see guards.h. The kept set is Docker's default, which is what package managers are tested with. */
#include "guards.h"

#include "kernel.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>

#define BIT(capability) ((uint64_t)1 << (capability))
#define KEPT                                                                                                       \
	(BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) | BIT(CAP_KILL) | BIT(CAP_SETGID) | \
	 BIT(CAP_SETUID) | BIT(CAP_SETPCAP) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_NET_RAW) | BIT(CAP_SYS_CHROOT) |     \
	 BIT(CAP_MKNOD) | BIT(CAP_AUDIT_WRITE) | BIT(CAP_SETFCAP))

int guards_drop_bounding(void)
{
	for (int capability = 0; capability < 64; capability++) {
		if ((KEPT & BIT(capability)) != 0)
			continue;
		/* EINVAL: this kernel has no capability of that number, nor a higher one. */
		if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
			return errno == EINVAL && capability > CAP_AUDIT_READ ? 0 : -1;
	}
	return 0;
}

int guards_set_capabilities(bool root)
{
	uint64_t kept = root ? KEPT : 0;
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {
		{ .effective = (uint32_t)kept, .permitted = (uint32_t)kept },
		{ .effective = (uint32_t)(kept >> 32), .permitted = (uint32_t)(kept >> 32) },
	};
	return (int)syscall(SYS_capset, &header, data);
}

void guards_hide_memory(void)
{
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
