/* See netlink.h. */
#include "netlink.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_SECONDS 10

static void *take(struct netlink_batch *batch, size_t size)
{
	size_t aligned = NLMSG_ALIGN(size);
	if (batch->failed || aligned > NETLINK_ROOM - batch->length) {
		batch->failed = true;
		return NULL;
	}
	void *at = batch->bytes + batch->length;
	memset(at, 0, aligned);
	batch->length += aligned;
	return at;
}

static void grow_message(struct netlink_batch *batch)
{
	struct nlmsghdr *message = (struct nlmsghdr *)(void *)(batch->bytes + batch->message);
	message->nlmsg_len = (uint32_t)(batch->length - batch->message);
}

void netlink_begin(struct netlink_batch *batch, uint16_t type, uint16_t flags, const void *header, size_t size)
{
	batch->message = batch->length;
	struct nlmsghdr *message = take(batch, NLMSG_HDRLEN);
	void *body = take(batch, size);
	if (message == NULL || body == NULL)
		return;
	memcpy(body, header, size);
	message->nlmsg_type = type;
	message->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
	message->nlmsg_seq = batch->count++;
	grow_message(batch);
}

void netlink_add(struct netlink_batch *batch, uint16_t type, const void *bytes, size_t size)
{
	struct rtattr *attribute = take(batch, RTA_LENGTH(size));
	if (attribute == NULL)
		return;
	attribute->rta_type = type;
	attribute->rta_len = (unsigned short)RTA_LENGTH(size);
	memcpy(RTA_DATA(attribute), bytes, size);
	grow_message(batch);
}

void netlink_add_u32(struct netlink_batch *batch, uint16_t type, uint32_t value)
{
	netlink_add(batch, type, &value, sizeof(value));
}

size_t netlink_nest(struct netlink_batch *batch, uint16_t type, const void *header, size_t size)
{
	size_t nest = batch->length;
	struct rtattr *attribute = take(batch, RTA_LENGTH(size));
	if (attribute == NULL)
		return 0;
	attribute->rta_type = type;
	if (size > 0)
		memcpy(RTA_DATA(attribute), header, size);
	return nest;
}

void netlink_end_nest(struct netlink_batch *batch, size_t nest)
{
	if (batch->failed)
		return;
	struct rtattr *attribute = (struct rtattr *)(void *)(batch->bytes + nest);
	attribute->rta_len = (unsigned short)(batch->length - nest);
	grow_message(batch);
}

/* 0, or -1 when a message was refused or the kernel did not answer. */
static int read_answers(int socket, unsigned count, unsigned *refused)
{
	_Alignas(8) char answer[8192];
	int error = 0;
	for (unsigned seen = 0; seen < count;) {
		ssize_t length = recv(socket, answer, sizeof(answer), 0);
		if (length < 0 && errno == EINTR)
			continue;
		if (length < 0)
			return -1;
		size_t left = (size_t)length;
		for (struct nlmsghdr *message = (struct nlmsghdr *)(void *)answer; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
			if (message->nlmsg_type != NLMSG_ERROR)
				continue;
			const struct nlmsgerr *report = NLMSG_DATA(message);
			seen++;
			if (report->error == 0 || error != 0)
				continue;
			error = -report->error;
			*refused = report->msg.nlmsg_seq;
		}
	}
	errno = error;
	return error == 0 ? 0 : -1;
}

int netlink_send(const struct netlink_batch *batch, unsigned *refused)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct timeval patience = { .tv_sec = ANSWER_SECONDS };
	*refused = 0;
	if (batch->failed) {
		errno = ENOBUFS;
		return -1;
	}
	int socket_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (socket_fd < 0)
		return -1;
	int result = -1;
	if (setsockopt(socket_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
	    sendto(socket_fd, batch->bytes, batch->length, 0, (struct sockaddr *)&kernel, sizeof(kernel)) == (ssize_t)batch->length)
		result = read_answers(socket_fd, batch->count, refused);
	int error = errno;
	close(socket_fd);
	errno = error;
	return result;
}
