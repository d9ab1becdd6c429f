/* The handshake between two processes of one host, by hand: crates/fabric/src/handshake.rs says what is in it. */
#ifndef HANDSHAKE_H
#define HANDSHAKE_H

#include "../../crates/verbs/tests/c/connect.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Postcard numbers them from 0. */
enum { HELLO = 1, WELCOME, READY, ACCEPT, CONFIRM, REFUSE };

#define VERSION 5
/* The last version whose messages were structures. */
#define LAST_OF_STRUCTURES 4
/* What stands before the kind. */
#define HEAD 12
#define FILES 8
/* Words of the shared files, which a peer checks. */
#define ROOM 65536

/* Everything that came from the other process. */
struct loot {
	unsigned char bytes[ROOM];
	size_t length;
	int files;
};

/* Writes a number as postcard does: seven bits a byte, the lowest first, the highest bit set while more follow. Gives the bytes. */
static inline size_t put_number(unsigned char *at, uint64_t value)
{
	size_t length = 0;

	for (; value >= 0x80; value >>= 7)
		at[length++] = value | 0x80;
	at[length++] = value;
	return length;
}

static inline size_t get_number(const unsigned char *at, uint64_t *value)
{
	size_t length = 0;

	*value = 0;
	do {
		CHECK(length < 10);
		*value |= (uint64_t)(at[length] & 0x7f) << 7 * length;
	} while (at[length++] & 0x80);
	return length;
}

/* Writes a message of a version; gives its bytes. */
static inline size_t put_message(unsigned char *bytes, uint32_t version, uint32_t kind, const uint64_t *words, int count)
{
	static const uint32_t kinds_of_structures[] = { [HELLO] = 1, [WELCOME] = 2, [READY] = 3, [REFUSE] = 4, [ACCEPT] = 5, [CONFIRM] = 6 };
	size_t length = HEAD;

	memcpy(bytes, "pagewire", 8);
	memcpy(bytes + 8, &version, 4);
	if (version <= LAST_OF_STRUCTURES) {
		memcpy(bytes + length, &kinds_of_structures[kind], 4);
		memcpy(bytes + length + 4, words, 8 * count);
		return length + 4 + 8 * count;
	}
	length += put_number(bytes + length, kind - 1);
	for (int i = 0; i < count; i++)
		length += put_number(bytes + length, words[i]);
	return length;
}

static inline void say(int socket, uint32_t version, uint32_t kind, const uint64_t *words, int count, const int *files,
		       int file_count)
{
	unsigned char message[64];
	struct iovec part = { message, put_message(message, version, kind, words, count) };
	union {
		char space[CMSG_SPACE(FILES * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };

	if (file_count) {
		struct cmsghdr *rights = (void *)control.space;

		header.msg_control = control.space;
		header.msg_controllen = CMSG_SPACE(file_count * sizeof(int));
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(file_count * sizeof(int));
		memcpy(CMSG_DATA(rights), files, file_count * sizeof(int));
	}
	/* The other end may have closed already. */
	CHECK(sendmsg(socket, &header, MSG_NOSIGNAL) >= 0 || errno == EPIPE || errno == ECONNRESET);
}

/* Keeps a message and the files with it; gives its kind, or 0 at the end of the connection. */
static inline uint32_t take(int socket, struct loot *loot)
{
	union {
		char space[CMSG_SPACE(FILES * sizeof(int))];
		struct cmsghdr align;
	} control;
	unsigned char buffer[1024];
	struct iovec part = { buffer, sizeof(buffer) };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space,
				 .msg_controllen = sizeof(control.space) };
	ssize_t found, length = recvmsg(socket, &header, 0);

	if (length < 0 && errno == ECONNRESET)
		return 0;
	/* No answer within PATIENCE_SECONDS is EAGAIN. */
	CHECK(length >= 0);
	for (struct cmsghdr *rights = CMSG_FIRSTHDR(&header); rights; rights = CMSG_NXTHDR(&header, rights)) {
		int count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int), file;

		for (int i = 0; i < count; i++) {
			memcpy(&file, CMSG_DATA(rights) + i * sizeof(int), sizeof(int));
			loot->files++;
			found = pread(file, loot->bytes + loot->length, ROOM - loot->length, 0);
			if (found > 0)
				loot->length += found;
			close(file);
		}
	}
	CHECK(loot->length + length <= ROOM);
	memcpy(loot->bytes + loot->length, buffer, length);
	loot->length += length;
	return length > HEAD ? buffer[HEAD] + 1 : 0;
}

static inline struct sockaddr_un name_of(uint32_t block, socklen_t *length)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };

	*length = offsetof(struct sockaddr_un, sun_path) + 1 +
		  snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "pagewire-qpn-%u", block);
	return name;
}

static inline int open_socket(void)
{
	struct timeval patience = { .tv_sec = PATIENCE_SECONDS };
	int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK(made >= 0 && setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
	return made;
}

static inline int reach(uint32_t block)
{
	socklen_t length;
	struct sockaddr_un name = name_of(block, &length);
	int made = open_socket();

	CHECK(connect(made, (void *)&name, length) == 0);
	return made;
}

/* On the next block from there on that nobody has: another test's engine may have leased it. */
static inline int lie_in_wait(uint32_t *block)
{
	int made = open_socket(), refused;

	for (int tries = 0; tries < 256; tries++, ++*block) {
		socklen_t length;
		struct sockaddr_un name = name_of(*block, &length);

		refused = bind(made, (void *)&name, length);
		if (refused == 0 || errno != EADDRINUSE)
			break;
	}
	CHECK(refused == 0 && listen(made, 8) == 0);
	return made;
}

/* Files as a process of that version sends them. */
static inline void make_files(int files[3])
{
	static const size_t sizes[3] = { 1 << 26, 1 << 12, 1 << 23 };

	for (int i = 0; i < 3; i++) {
		files[i] = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		CHECK(files[i] >= 0 && ftruncate(files[i], sizes[i]) == 0);
		CHECK(fcntl(files[i], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	}
}

#endif
