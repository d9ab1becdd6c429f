/* Events: descriptors that are readable exactly while an event waits, and objects that are gone only when all is acknowledged
 * (ibv_get_async_event(3), ibv_get_cq_event(3)). */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

static int readable(int descriptor)
{
	struct pollfd fd = { .fd = descriptor, .events = POLLIN };

	return poll(&fd, 1, 0);
}

/* Sleeps until an event waits, outside the library. */
static int becomes_readable(int descriptor)
{
	struct pollfd fd = { .fd = descriptor, .events = POLLIN };

	return poll(&fd, 1, 20000);
}

static void not_blocking(int descriptor, int on)
{
	int flags = fcntl(descriptor, F_GETFL);

	CHECK(fcntl(descriptor, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0);
}

static struct ibv_srq *srq_with_limit_event(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);

	CHECK(srq);
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
	return srq;
}

/* The event of an object that is destroyed before it was read leaves the descriptor too; others stay, in order. */
static void withdrawn_events(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_srq *first = srq_with_limit_event(pd), *second = srq_with_limit_event(pd);
	struct ibv_srq *third = srq_with_limit_event(pd);
	struct ibv_async_event event;

	CHECK(readable(context->async_fd) == 1);
	CHECK(ibv_destroy_srq(second) == 0);
	CHECK(ibv_get_async_event(context, &event) == 0 && event.element.srq == first);
	ibv_ack_async_event(&event);
	CHECK(ibv_get_async_event(context, &event) == 0 && event.element.srq == third);
	ibv_ack_async_event(&event);
	CHECK(readable(context->async_fd) == 0);
	CHECK(ibv_destroy_srq(first) == 0 && ibv_destroy_srq(third) == 0);
	first = srq_with_limit_event(pd);
	CHECK(readable(context->async_fd) == 1);
	CHECK(ibv_destroy_srq(first) == 0);
	CHECK(readable(context->async_fd) == 0);
	not_blocking(context->async_fd, 1);
	CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
	not_blocking(context->async_fd, 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
}

static struct ibv_qp *flushing_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	to_init(qp);
	to_error(qp);
	return qp;
}

/* The event of a completion queue that is destroyed before it was read leaves the channel's descriptor too. */
static void withdrawn_completion_events(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *stays = ibv_create_cq(context, 4, NULL, channel, 0), *told;
	struct ibv_cq *goes = ibv_create_cq(context, 4, NULL, channel, 0);
	struct ibv_qp *qp = flushing_qp(pd, goes);
	struct ibv_recv_wr wr = { 0 }, *bad;
	void *cq_context;

	CHECK(ibv_req_notify_cq(goes, 0) == 0 && ibv_req_notify_cq(stays, 0) == 0);
	CHECK(readable(channel->fd) == 0);
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	CHECK(readable(channel->fd) == 1);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(goes) == 0);
	CHECK(readable(channel->fd) == 0);
	qp = flushing_qp(pd, stays);
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	CHECK(readable(channel->fd) == 1);
	CHECK(ibv_get_cq_event(channel, &told, &cq_context) == 0 && told == stays);
	CHECK(readable(channel->fd) == 0);
	ibv_ack_cq_events(stays, 1);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(stays) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* Whoever arms a queue with completions in it, leaves them there and sleeps, in the library or in poll(2), is woken. */
static void completions_left_in_the_queue(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0), *told;
	struct ibv_qp *qp = flushing_qp(pd, cq);
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_wc wc[4];
	void *cq_context;

	for (int solicited_only = 0; solicited_only < 2; solicited_only++) {
		CHECK(ibv_post_recv(qp, &wr, &bad) == 0 && ibv_post_recv(qp, &wr, &bad) == 0);
		for (int polls = 0; polls < 2; polls++) {
			CHECK(ibv_req_notify_cq(cq, solicited_only) == 0);
			CHECK(!polls || becomes_readable(channel->fd) == 1);
			CHECK(ibv_get_cq_event(channel, &told, &cq_context) == 0 && told == cq);
			CHECK(readable(channel->fd) == 0);
		}
		ibv_ack_cq_events(cq, 2);
		CHECK(ibv_poll_cq(cq, 4, wc) == 2);
	}
	/* Taken between arming and sleeping, as programs should: the queue stays armed for the next one. */
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0 && ibv_req_notify_cq(cq, 0) == 0);
	CHECK(ibv_poll_cq(cq, 4, wc) == 1);
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	CHECK(ibv_get_cq_event(channel, &told, &cq_context) == 0 && told == cq);
	CHECK(readable(channel->fd) == 0);
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* What is left in another queue of the channel has an event of its own. */
static void completions_left_in_another_queue(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *left = ibv_create_cq(context, 4, NULL, channel, 0), *first;
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0), *second;
	struct ibv_qp *qps[] = { flushing_qp(pd, left), flushing_qp(pd, cq) };
	struct ibv_recv_wr wr = { 0 }, *bad;
	void *cq_context;

	CHECK(ibv_post_recv(qps[0], &wr, &bad) == 0 && ibv_req_notify_cq(left, 0) == 0);
	CHECK(ibv_req_notify_cq(cq, 0) == 0 && ibv_post_recv(qps[1], &wr, &bad) == 0);
	CHECK(ibv_get_cq_event(channel, &first, &cq_context) == 0);
	CHECK(becomes_readable(channel->fd) == 1);
	CHECK(ibv_get_cq_event(channel, &second, &cq_context) == 0 && second != first);
	CHECK(readable(channel->fd) == 0);
	ibv_ack_cq_events(cq, 1);
	ibv_ack_cq_events(left, 1);
	for (int i = 0; i < 2; i++)
		CHECK(ibv_destroy_qp(qps[i]) == 0);
	CHECK(ibv_destroy_cq(left) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(pd) == 0);
}

static volatile int acknowledged;

static void *acknowledge_later(void *event)
{
	usleep(50000);
	acknowledged = 1;
	ibv_ack_async_event(event);
	return NULL;
}

/* Destruction waits for the acknowledgement of events that were given to the program. */
static void unacknowledged_events(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq;
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_async_event event;
	struct ibv_qp *qp;
	pthread_t thread;

	srq = srq_with_limit_event(pd);
	CHECK(ibv_get_async_event(context, &event) == 0);
	acknowledged = 0;
	CHECK(pthread_create(&thread, NULL, acknowledge_later, &event) == 0);
	CHECK(ibv_destroy_srq(srq) == 0 && acknowledged);
	CHECK(pthread_join(thread, NULL) == 0);

	init.srq = srq = ibv_create_srq(pd, &srq_init);
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	to_init(qp);
	to_error(qp);
	CHECK(ibv_get_async_event(context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == qp);
	acknowledged = 0;
	CHECK(pthread_create(&thread, NULL, acknowledge_later, &event) == 0);
	CHECK(ibv_destroy_qp(qp) == 0 && acknowledged);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
}

struct getter {
	struct ibv_context *context;
	struct ibv_async_event event;
};

static void *get_event(void *argument)
{
	struct getter *getter = argument;

	CHECK(ibv_get_async_event(getter->context, &getter->event) == 0);
	return NULL;
}

static volatile int signals;

static void count_signal(int number)
{
	(void)number;
	signals++;
}

/* A thread that sleeps for an event sleeps on while events of objects that are destroyed come and go, and through signals
 * whose handlers ask for it (SA_RESTART). */
static void sleeping_for_an_event(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct getter getter = { .context = context };
	struct sigaction action = { .sa_handler = count_signal, .sa_flags = SA_RESTART };
	struct ibv_srq *srq;
	pthread_t thread;

	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, get_event, &getter) == 0);
	usleep(20000);
	CHECK(pthread_kill(thread, SIGUSR1) == 0);
	while (!signals)
		usleep(1000);
	srq = srq_with_limit_event(pd);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(getter.event.element.srq == srq);
	ibv_ack_async_event(&getter.event);
	CHECK(ibv_destroy_srq(srq) == 0 && ibv_dealloc_pd(pd) == 0);
}

#define ROUNDS 2000
static volatile int finished;

/* Takes whatever event there is, acknowledges it, and ends with the program. */
static void *take_events(void *argument)
{
	struct ibv_context *context = argument;
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	while (!finished) {
		if (poll(&fd, 1, 10) == 1 && ibv_get_async_event(context, &event) == 0)
			ibv_ack_async_event(&event);
	}
	return NULL;
}

/* Reading and destroying at the same time: nothing is lost, nothing is left. */
static void racing_with_destruction(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_srq *stays;
	struct ibv_async_event event;
	pthread_t threads[2];

	not_blocking(context->async_fd, 1);
	finished = 0;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, take_events, context) == 0);
	for (int i = 0; i < ROUNDS; i++)
		CHECK(ibv_destroy_srq(srq_with_limit_event(pd)) == 0);
	finished = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(readable(context->async_fd) == 0);
	CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
	stays = srq_with_limit_event(pd);
	CHECK(ibv_get_async_event(context, &event) == 0 && event.element.srq == stays);
	ibv_ack_async_event(&event);
	not_blocking(context->async_fd, 0);
	CHECK(ibv_destroy_srq(stays) == 0 && ibv_dealloc_pd(pd) == 0);
}

/* A device may be closed with events that are not acknowledged: it ends the queue pairs without waiting. */
static void closed_with_an_event(void)
{
	struct ibv_context *context = open_first_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_qp_init_attr init = plain_attributes(cq, IBV_QPT_RC);
	struct ibv_async_event event;
	struct ibv_qp *qp;

	init.srq = ibv_create_srq(pd, &srq_init);
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	to_init(qp);
	to_error(qp);
	CHECK(ibv_get_async_event(context, &event) == 0);
	CHECK(ibv_close_device(context) == 0);
}

int main(void)
{
	struct ibv_context *context = open_first_device();

	withdrawn_events(context);
	withdrawn_completion_events(context);
	completions_left_in_the_queue(context);
	completions_left_in_another_queue(context);
	unacknowledged_events(context);
	sleeping_for_an_event(context);
	racing_with_destruction(context);
	closed_with_an_event();
	CHECK(ibv_close_device(context) == 0);
	return 0;
}
