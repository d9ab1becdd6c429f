/* Objects in use, arguments that are wrong, requests that are refused, and what is left when all are gone. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

static char buffer[8192];

static void null_pointers(struct ibv_context *context)
{
	struct ibv_device_attr device;
	union ibv_gid gid;
	uint16_t pkey;
	int count = 7;
	struct ibv_device **list = ibv_get_device_list(&count);

	CHECK(list && count > 0 && list[count] == NULL);
	ibv_free_device_list(list);
	list = ibv_get_device_list(NULL);
	CHECK(list);
	ibv_free_device_list(list);
	ibv_free_device_list(NULL);
	CHECK(ibv_get_device_name(NULL) == NULL);
	CHECK(ibv_get_device_guid(NULL) == 0);
	REFUSED(ibv_open_device(NULL), EINVAL);
	REFUSED(ibv_alloc_pd(NULL), EINVAL);
	REFUSED(ibv_create_cq(NULL, 4, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_qp(NULL, NULL), EINVAL);
	REFUSED(ibv_create_comp_channel(NULL), EINVAL);
	CHECK(ibv_dealloc_pd(NULL) == EINVAL);
	CHECK(ibv_dereg_mr(NULL) == EINVAL);
	CHECK(ibv_destroy_cq(NULL) == EINVAL);
	CHECK(ibv_destroy_qp(NULL) == EINVAL);
	CHECK(ibv_destroy_srq(NULL) == EINVAL);
	CHECK(ibv_destroy_ah(NULL) == EINVAL);
	CHECK(ibv_destroy_comp_channel(NULL) == EINVAL);
	CHECK(ibv_close_device(NULL) == -1);
	CHECK(ibv_query_device(context, NULL) == EINVAL);
	CHECK(ibv_query_device(NULL, &device) == EINVAL);
	CHECK(ibv_query_gid(context, 1, -1, &gid) == -1 && errno == EINVAL);
	CHECK(ibv_query_gid(context, 2, 0, &gid) == -1 && errno == EINVAL);
	CHECK(ibv_query_gid(context, 1, 100000, &gid) == -1 && errno == EINVAL);
	CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
	CHECK(ibv_query_pkey(context, 1, 1, &pkey) == -1);
	CHECK(ibv_get_pkey_index(context, 1, 0xffff) == 0);
	CHECK(ibv_get_pkey_index(context, 1, 0x1234) == -1);
}

static void tables(struct ibv_context *context)
{
	struct ibv_gid_entry entries[256], entry;
	struct ibv_port_attr port;
	union ibv_gid gid;
	ssize_t count = ibv_query_gid_table(context, entries, 256, 0);

	CHECK(ibv_query_port(context, 1, &port) == 0);
	CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(port.flags & IBV_QPF_GRH_REQUIRED);
	CHECK(count == port.gid_tbl_len && count > 0);
	CHECK(ibv_query_gid_table(context, entries, 0, 0) == -EINVAL);
	CHECK(ibv_query_port(context, 2, &port) == EINVAL);
	for (ssize_t i = 0; i < count; i++) {
		CHECK(entries[i].gid_index == i && entries[i].port_num == 1);
		CHECK(entries[i].gid_type == IBV_GID_TYPE_ROCE_V2);
		CHECK(ibv_query_gid(context, 1, i, &gid) == 0);
		CHECK(ibv_query_gid_ex(context, 1, i, &entry, 0) == 0);
		CHECK(memcmp(&gid, &entry.gid, sizeof(gid)) == 0);
		CHECK(memcmp(&entry, &entries[i], sizeof(entry)) == 0);
	}
	CHECK(ibv_query_gid_ex(context, 1, count, &entry, 0) == EINVAL);
	CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 1) == EOPNOTSUPP);
}

/* Programs duplicate it, send it to others, and look what it is. */
static void command_descriptor(void)
{
	struct ibv_context *context = open_first_device();
	int descriptor = context->cmd_fd;

	CHECK(descriptor > 2 && descriptor != context->async_fd);
	CHECK(fcntl(descriptor, F_GETFD) == FD_CLOEXEC);
	CHECK(ibv_close_device(context) == 0);
	CHECK(fcntl(descriptor, F_GETFD) == -1 && errno == EBADF);
}

static struct ibv_ah_attr to_ourselves(struct ibv_context *context)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };

	CHECK(ibv_query_gid(context, 1, 0, &attr.grh.dgid) == 0);
	return attr;
}

static void objects_in_use(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 10, &channel, channel, 0);
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_ah_attr ah_attr = to_ourselves(context);
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	struct ibv_qp *qp;

	CHECK(channel && pd && cq && srq);
	CHECK(cq->cqe >= 10 && cq->cq_context == &channel && cq->channel == channel && channel->refcnt == 1);
	init.srq = srq;
	init.qp_context = &qp;
	qp = ibv_create_qp(pd, &init);
	CHECK(qp && qp->qp_context == &qp && qp->srq == srq && qp->state == IBV_QPS_RESET && qp->qp_num > 1);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY);
	CHECK(ibv_destroy_cq(cq) == EBUSY);
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_destroy_srq(srq) == 0);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->addr == buffer && mr->length == sizeof(buffer) && mr->pd == pd);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_dereg_mr(mr) == 0);
	ah = ibv_create_ah(pd, &ah_attr);
	CHECK(ah);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_destroy_ah(ah) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(channel->refcnt == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

static void registration(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
	struct ibv_mr *mr;
	uint32_t key;
	volatile unsigned flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_OPTIONAL_RANGE;

	REFUSED(ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_REMOTE_WRITE), EINVAL);
	REFUSED(ibv_reg_mr(pd, buffer, sizeof(buffer), 1 << 15), EINVAL);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), flags);
	CHECK(mr);
	CHECK(ibv_rereg_mr(mr, 1 << 7, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION, other, buffer + 64, 128, 0) == 0);
	CHECK(mr->pd == other && mr->addr == buffer + 64 && mr->length == 128);
	/* Other rights leave the keys that peers have learnt as they are. */
	key = mr->rkey;
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ) == 0);
	CHECK(mr->rkey == key && mr->lkey == key);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_dealloc_pd(other) == EBUSY);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dealloc_pd(other) == 0);
}

/* A list stops at its first bad request, which is told; those before it are posted. */
static void refused_posts(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC), seen;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_sge sge[3] = { { .addr = (uintptr_t)buffer, .length = 8 } };
	struct ibv_recv_wr third = { .wr_id = 3 }, second = { .wr_id = 2, .next = &third },
			   first = { .wr_id = 1, .next = &second }, *bad = NULL;
	struct ibv_send_wr send = { .wr_id = 4, .opcode = IBV_WR_SEND }, *bad_send = NULL;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_wc wc[8];

	CHECK(pd && cq && qp);
	CHECK(ibv_post_recv(qp, &first, &bad) == EINVAL && bad == &first);
	to_init(qp);
	second.sg_list = sge;
	second.num_sge = 3;
	CHECK(ibv_post_recv(qp, &first, &bad) == EINVAL && bad == &second);
	second.num_sge = -1;
	CHECK(ibv_post_recv(qp, &third, &bad) == 0);
	CHECK(ibv_post_recv(qp, &second, &bad) == EINVAL && bad == &second);
	CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL && bad_send == &send);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
	CHECK(ibv_modify_qp(qp, &attr, 1 << 21) == EINVAL);
	CHECK(qp->state == IBV_QPS_INIT);
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &seen) == 0);
	CHECK(attr.qp_state == IBV_QPS_INIT && attr.port_num == 1);
	CHECK(seen.send_cq == cq && seen.qp_type == IBV_QPT_RC && seen.cap.max_send_wr >= 4);
	to_error(qp);
	CHECK(ibv_poll_cq(cq, 8, wc) == 2);
	CHECK(wc[0].wr_id == 1 && wc[0].status == IBV_WC_WR_FLUSH_ERR && wc[0].qp_num == qp->qp_num);
	CHECK(wc[1].wr_id == 3 && wc[1].status == IBV_WC_WR_FLUSH_ERR);
	/* What is posted in the error state is flushed. */
	CHECK(ibv_post_recv(qp, &third, &bad) == 0);
	CHECK(ibv_post_send(qp, &send, &bad_send) == 0);
	CHECK(ibv_poll_cq(cq, 8, wc) == 2);
	CHECK(ibv_poll_cq(cq, 8, wc) == 0);
	send.send_flags = 1 << 9;
	CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL && bad_send == &send);
	send.send_flags = IBV_SEND_INLINE;
	sge[0].length = 4096;
	send.sg_list = sge;
	send.num_sge = 1;
	CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL);
	CHECK(ibv_poll_cq(cq, -1, wc) < 0);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_resize_cq(cq, 32) == 0 && cq->cqe >= 32);
	CHECK(ibv_resize_cq(cq, -1) == EINVAL);
	CHECK(ibv_destroy_cq(cq) == 0);
	REFUSED(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(context, 1, NULL, NULL, context->num_comp_vectors), EINVAL);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

static void *acknowledge_later(void *cq)
{
	usleep(50000);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

/* Events wait on a pollable descriptor, and a queue is gone only when its events are acknowledged. */
static void completion_events(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, &pd, channel, 0), *told = NULL;
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	void *cq_context = NULL;
	pthread_t thread;

	CHECK(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	CHECK(ibv_get_cq_event(channel, &told, &cq_context) == -1 && errno == EAGAIN);
	CHECK(poll(&fd, 1, 0) == 0);
	to_init(qp);
	to_error(qp);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	/* Two completions after one arming are one event. */
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	CHECK(poll(&fd, 1, 5000) == 1);
	CHECK(ibv_get_cq_event(channel, &told, &cq_context) == 0);
	CHECK(told == cq && cq_context == &pd);
	CHECK(ibv_get_cq_event(channel, &told, &cq_context) == -1 && errno == EAGAIN);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(pthread_create(&thread, NULL, acknowledge_later, cq) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	/* An event of a queue that is gone is never given. */
	cq = ibv_create_cq(context, 16, NULL, channel, 0);
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(pd, &init);
	to_init(qp);
	to_error(qp);
	CHECK(ibv_req_notify_cq(cq, 1) == 0);
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_get_cq_event(channel, &told, &cq_context) == -1 && errno == EAGAIN);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

/* The limit event of a shared receive queue fires once. */
static void asynchronous_events(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_srq_init_attr init = { .srq_context = &pd, .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	struct ibv_async_event event;
	struct ibv_recv_wr second = { .wr_id = 2 }, first = { .wr_id = 1, .next = &second }, *bad;

	CHECK(srq && srq->srq_context == &pd);
	CHECK(fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK) == 0);
	CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
	CHECK(ibv_post_srq_recv(srq, &first, &bad) == 0);
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
	CHECK(ibv_get_async_event(context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
	ibv_ack_async_event(&event);
	CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
	CHECK(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == 0 && attr.max_wr >= 8);
	CHECK(ibv_modify_srq(srq, &attr, 1 << 5) == EINVAL);
	CHECK(ibv_destroy_srq(srq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

/* An address taken from a completion is that of its sender. */
static void address_of_completion(struct ibv_context *context)
{
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .sl = 3 };
	struct ibv_grh grh;
	struct ibv_ah_attr attr;
	union ibv_gid gid;

	memset(&grh, 0, sizeof(grh));
	CHECK(ibv_init_ah_from_wc(context, 2, &wc, &grh, &attr) == -1 && errno == EINVAL);
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == -1 && errno == EINVAL);
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
	grh.version_tclass_flow = htobe32(6u << 28 | 5u << 20 | 7u);
	grh.dgid = gid;
	grh.sgid.raw[0] = 0xfe;
	grh.sgid.raw[15] = 9;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == 0);
	CHECK(attr.is_global == 1 && attr.port_num == 1 && attr.sl == 3);
	CHECK(attr.grh.traffic_class == 5 && attr.grh.flow_label == 7 && attr.grh.sgid_index == 0);
	CHECK(memcmp(&attr.grh.dgid, &grh.sgid, sizeof(gid)) == 0);
}

/* The extended queue hands over one completion at a time, in order, and says ENOENT behind the last. */
static void extended_polling(struct ibv_context *context)
{
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &cq_init);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_qp_init_attr init;
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_qp *qp;

	CHECK(cq && pd);
	init = plain_attributes(ibv_cq_ex_to_cq(cq), IBV_QPT_RC);
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	to_init(qp);
	to_error(qp);
	for (wr.wr_id = 1; wr.wr_id <= 3; wr.wr_id++)
		CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	CHECK(ibv_start_poll(cq, &attr) == 0);
	CHECK(cq->wr_id == 1 && cq->status == IBV_WC_WR_FLUSH_ERR && ibv_wc_read_qp_num(cq) == qp->qp_num);
	CHECK(ibv_next_poll(cq) == 0 && cq->wr_id == 2);
	ibv_end_poll(cq);
	CHECK(ibv_start_poll(cq, &attr) == 0 && cq->wr_id == 3);
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	CHECK(ibv_start_poll(cq, &attr) == ENOENT);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

/* Closing a device ends what is left of it. */
static void closed_with_leftovers(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);

	CHECK(ibv_create_qp(pd, &init));
	CHECK(ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE));
	CHECK(ibv_close_device(context) == 0);
}

int main(void)
{
	struct ibv_context *context = open_first_device();

	null_pointers(context);
	tables(context);
	command_descriptor();
	objects_in_use(context);
	registration(context);
	refused_posts(context);
	completion_events(context);
	asynchronous_events(context);
	address_of_completion(context);
	extended_polling(context);
	closed_with_leftovers();
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
