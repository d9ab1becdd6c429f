/*
 * Processes that share an XRC domain by a file, for the C test programs. Each member is the same program, executed again, which does what the
 * test asks for: one command and one answer at a time, over a pair of sockets.
 */
#ifndef XRC_MEMBERS_H
#define XRC_MEMBERS_H

#include "connect.h"
#include "flush.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define SPACE 131072
#define DEPTH 16

enum order {
	JOIN,        /* file flags; answers the number of the queue, key and address of the memory */
	RECEIVE,     /* wr_id, bytes */
	COMPLETION,  /* answers the next one */
	NO_COMPLETION,
	FILL,        /* offset, bytes, value */
	HOLDS,       /* offset, bytes, value: answers whether these are there */
	PEEK,        /* offset: answers 8 bytes */
	POKE,        /* offset, 8 bytes */
	CREATE,      /* answers the number of the queue pair */
	OPEN,        /* number */
	CONNECT,     /* number of the sender */
	TIMER,       /* min_rnr_timer */
	QUERY,       /* answers the state, the number of the peer, min_rnr_timer */
	RESET,
	DESTROY,     /* the queue pair */
	LEAVE,       /* the queue and the domain */
	SEND_TO,     /* number of the queue pair, or 0 to make one and answer its number; then the queue, bytes */
};

struct command {
	enum order order;
	uint64_t values[4];
};

struct answer {
	int error;
	uint64_t values[6];
};

struct member {
	pid_t pid;
	int socket;
	uint32_t queue, key;
	uint64_t address;
};

static struct {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_xrcd *domain;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	struct ibv_qp *receiver, *sender;
	char *memory;
} own;

static inline struct ibv_xrcd *open_file_domain(int fd, int flags)
{
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags };

	return ibv_open_xrcd(own.context, &init);
}

static inline void open_objects(void)
{
	own.context = open_first_device();
	own.pd = ibv_alloc_pd(own.context);
	own.cq = ibv_create_cq(own.context, 4 * DEPTH, NULL, NULL, 0);
	CHECK(own.pd && own.cq && posix_memalign((void **)&own.memory, 4096, SPACE) == 0);
	memset(own.memory, 0, SPACE);
	own.mr = ibv_reg_mr(own.pd, own.memory, SPACE, ALL_ACCESS | ACCESS_FLUSH_GLOBAL);
	CHECK(own.mr);
}

static inline struct ibv_qp *create_xrc_sender(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = own.cq, .qp_type = IBV_QPT_XRC_SEND, .pd = own.pd,
		.cap = { .max_send_wr = DEPTH, .max_send_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | QP_EX_WITH_FLUSH,
	};

	return ibv_create_qp_ex(own.context, &init);
}

static inline int connect_xrc_receiver(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = usual_attributes(own.context, peer);

	attr.qp_state = IBV_QPS_INIT;
	attr.qp_access_flags |= ACCESS_FLUSH_GLOBAL;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) return errno;
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) return errno;
	attr.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT) ? errno : 0;
}

static inline void connect_xrc_sender(struct ibv_qp *qp, uint32_t peer, int rnr_retry)
{
	struct ibv_qp_attr attr = usual_attributes(own.context, peer);

	to_open_init(qp);
	attr.rnr_retry = rnr_retry;
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static inline int join_domain(int file, int flags, struct answer *answer)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = DEPTH, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = own.pd, .cq = own.cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	};
	uint32_t number;

	errno = 0;
	own.domain = open_file_domain(file, flags);
	if (!own.domain) return errno;
	init.xrcd = own.domain;
	own.srq = ibv_create_srq_ex(own.context, &init);
	if (!own.srq || ibv_get_srq_num(own.srq, &number)) return errno;
	answer->values[0] = number;
	answer->values[1] = own.mr->rkey;
	answer->values[2] = (uintptr_t)own.memory;
	return 0;
}

static inline int open_receiver(uint32_t number)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = number, .xrcd = own.domain, .qp_type = IBV_QPT_XRC_RECV,
	};

	errno = 0;
	own.receiver = ibv_open_qp(own.context, &attr);
	if (!own.receiver) return errno;
	CHECK(own.receiver->qp_num == number);
	return 0;
}

static inline void post_to(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t queue, uint32_t length, uint32_t rkey, uint64_t address)
{
	struct ibv_sge sge = { (uintptr_t)own.memory, length, own.mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED, .imm_data = 7,
		.qp_type.xrc.remote_srqn = queue,
	}, *bad;

	set_remote(&wr, address, rkey);
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

static inline int send_to(const struct command *command, struct answer *answer)
{
	if (!command->values[0]) {
		own.sender = create_xrc_sender();
		if (!own.sender) return errno;
		answer->values[0] = own.sender->qp_num;
		return 0;
	}
	if (state_of(own.sender) == IBV_QPS_RESET) connect_xrc_sender(own.sender, command->values[0], 7);
	post_to(own.sender, IBV_WR_SEND, command->values[1], command->values[2], 0, 0);
	return 0;
}

static inline int obey(int file, const struct command *command, struct answer *answer)
{
	const uint64_t *given = command->values;
	struct ibv_sge sge = { (uintptr_t)own.memory, given[1], own.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = given[0], .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = own.domain };
	struct ibv_qp_attr attr = { .min_rnr_timer = given[0] };
	struct ibv_qp_init_attr made;
	struct ibv_wc wc;

	switch (command->order) {
	case JOIN:
		return join_domain(file, given[0], answer);
	case RECEIVE:
		return ibv_post_srq_recv(own.srq, &wr, &bad);
	case COMPLETION:
		poll_all(own.cq, 1, &wc);
		answer->values[0] = wc.wr_id;
		answer->values[1] = wc.status;
		answer->values[2] = wc.byte_len;
		answer->values[3] = wc.qp_num;
		answer->values[4] = wc.wc_flags & IBV_WC_WITH_IMM ? wc.imm_data : 0;
		answer->values[5] = wc.opcode;
		return 0;
	case NO_COMPLETION:
		poll_none(own.cq);
		return 0;
	case FILL:
		memset(own.memory + given[0], given[2], given[1]);
		return 0;
	case HOLDS:
		answer->values[0] = 1;
		for (uint64_t i = 0; i < given[1]; i++)
			answer->values[0] &= own.memory[given[0] + i] == (char)given[2];
		return 0;
	case PEEK:
		memcpy(answer->values, own.memory + given[0], 8);
		return 0;
	case POKE:
		memcpy(own.memory + given[0], &given[1], 8);
		return 0;
	case CREATE:
		own.receiver = ibv_create_qp_ex(own.context, &init);
		if (!own.receiver) return errno;
		answer->values[0] = own.receiver->qp_num;
		return 0;
	case OPEN:
		return open_receiver(given[0]);
	case CONNECT:
		return connect_xrc_receiver(own.receiver, given[0]);
	case TIMER:
		return ibv_modify_qp(own.receiver, &attr, IBV_QP_MIN_RNR_TIMER);
	case QUERY:
		if (ibv_query_qp(own.receiver, &attr, IBV_QP_STATE, &made)) return errno;
		answer->values[0] = attr.qp_state;
		answer->values[1] = attr.dest_qp_num;
		answer->values[2] = attr.min_rnr_timer;
		return 0;
	case RESET:
		attr.qp_state = IBV_QPS_RESET;
		return ibv_modify_qp(own.receiver, &attr, IBV_QP_STATE);
	case DESTROY:
		return ibv_destroy_qp(own.receiver);
	case LEAVE: {
		int failed = own.srq ? ibv_destroy_srq(own.srq) : 0;

		own.srq = NULL;
		return failed ? failed : ibv_close_xrcd(own.domain);
	}
	case SEND_TO:
		return send_to(command, answer);
	}
	return ENOSYS;
}

/* What a member does until the test ends. */
static inline int be_member(int socket, int file)
{
	struct command command;

	open_objects();
	while (read(socket, &command, sizeof(command)) == sizeof(command)) {
		struct answer answer = { 0 };

		answer.error = obey(file, &command, &answer);
		CHECK(write(socket, &answer, sizeof(answer)) == sizeof(answer));
	}
	return 0;
}

static inline struct member start_member(int file)
{
	struct member member;
	int ends[2];
	char socket_number[16], file_number[16];

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	snprintf(socket_number, sizeof(socket_number), "%d", ends[1]);
	snprintf(file_number, sizeof(file_number), "%d", file);
	member.pid = fork();
	CHECK(member.pid >= 0);
	if (member.pid == 0) {
		if (fcntl(ends[1], F_SETFD, 0) == 0) execl("/proc/self/exe", "member", socket_number, file_number, NULL);
		_exit(99);
	}
	close(ends[1]);
	member.socket = ends[0];
	return member;
}

static inline struct answer ask(struct member *member, enum order order, uint64_t first, uint64_t second, uint64_t third)
{
	struct command command = { order, { first, second, third } };
	struct answer answer;

	CHECK(write(member->socket, &command, sizeof(command)) == sizeof(command));
	CHECK(read(member->socket, &answer, sizeof(answer)) == sizeof(answer));
	return answer;
}

static inline struct answer must(struct member *member, enum order order, uint64_t first, uint64_t second, uint64_t third)
{
	struct answer answer = ask(member, order, first, second, third);

	if (answer.error) fprintf(stderr, "order %d: error %d: %s\n", order, answer.error, strerror(answer.error));
	CHECK(answer.error == 0);
	return answer;
}

static inline void join(struct member *member)
{
	struct answer answer = must(member, JOIN, O_CREAT, 0, 0);

	member->queue = answer.values[0];
	member->key = answer.values[1];
	member->address = answer.values[2];
}

static inline void kill_member(struct member *member)
{
	int result;

	CHECK(kill(member->pid, SIGKILL) == 0 && waitpid(member->pid, &result, 0) == member->pid && WIFSIGNALED(result));
	close(member->socket);
}

/* Stops a member, and waits until it is. */
static inline void stop(struct member *member)
{
	int result;

	CHECK(kill(member->pid, SIGSTOP) == 0 && waitpid(member->pid, &result, WUNTRACED) == member->pid && WIFSTOPPED(result));
}

static inline void end_member(struct member *member)
{
	int result;

	close(member->socket);
	CHECK(waitpid(member->pid, &result, 0) == member->pid && WIFEXITED(result) && WEXITSTATUS(result) == 0);
}

#endif
