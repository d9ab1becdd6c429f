/* connector server|client ADDRESS PORT [pause=STATE] [kill=STATE]: one side of one connection by rdma_cm(7), for
 * scripts/test-rxe. It prints the events with their status until one of them ends the connection, or says why the next step
 * fails. Its queue pairs carry nothing, so there are none.
 *
 * STATE is `request` (the client has asked, the server has not accepted), `response` (the server has accepted, the client has not
 * established) or `established`. kill: it kills itself there. pause: it takes no further step; a server at `request`, which hears
 * of nothing before it accepts, does so after some seconds. */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUIRE(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

/* Microseconds: for messages that are on their way when a side is killed, and, longer, for the death of the other side. */
#define BEFORE_DEATH 500000
#define PAUSE 4000000
#define RESOLUTION 5000 /* Milliseconds. */

static const char *pause_at = "", *kill_at = "";
static struct rdma_event_channel *channel;

/* Whether to go on. */
static int reach(const char *state)
{
    printf("state %s\n", state);
    if (!strcmp(state, kill_at)) {
        usleep(BEFORE_DEATH);
        kill(getpid(), SIGKILL);
    }
    return strcmp(state, pause_at);
}

/* A step that the end of the other side may have made impossible ends this one. */
static void step(const char *name, int status)
{
    if (status == 0)
        return;
    printf("%s: %s\n", name, strerror(errno));
    exit(0);
}

static struct rdma_conn_param parameters(void)
{
    return (struct rdma_conn_param){ .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .qp_num = 0x123 };
}

static void take(struct rdma_cm_id *id, enum rdma_cm_event_type event)
{
    struct rdma_conn_param param = parameters();
    switch (event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        REQUIRE(!rdma_resolve_route(id, RESOLUTION));
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        REQUIRE(!rdma_connect(id, &param));
        reach("request");
        break;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        if (!reach("request"))
            usleep(PAUSE);
        step("rdma_accept", rdma_accept(id, &param));
        reach("response");
        break;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        if (!reach("response"))
            break;
        step("rdma_establish", rdma_establish(id));
        if (reach("established"))
            step("rdma_disconnect", rdma_disconnect(id));
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        reach("established");
        break;
    default:
        exit(0);
    }
}

static void begin(const char *role, const char *address, const char *port)
{
    struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
    struct rdma_cm_id *id;
    int is_server = !strcmp(role, "server");
    hints.ai_flags = is_server ? RAI_PASSIVE : 0;
    REQUIRE(!rdma_getaddrinfo(address, port, &hints, &found));
    REQUIRE(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    if (is_server)
        REQUIRE(!rdma_bind_addr(id, found->ai_src_addr) && !rdma_listen(id, 1));
    else
        REQUIRE(!rdma_resolve_addr(id, NULL, found->ai_dst_addr, RESOLUTION));
}

int main(int count, char **words)
{
    if (count < 4)
        return 2;
    for (int i = 4; i < count; i++) {
        if (!strncmp(words[i], "pause=", 6))
            pause_at = words[i] + 6;
        else if (!strncmp(words[i], "kill=", 5))
            kill_at = words[i] + 5;
        else
            return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    channel = rdma_create_event_channel();
    REQUIRE(channel);
    begin(words[1], words[2], words[3]);
    for (;;) {
        struct rdma_cm_event *event;
        REQUIRE(!rdma_get_cm_event(channel, &event));
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type type = event->event;
        printf("event %s, status %d\n", rdma_event_str(type) + strlen("RDMA_CM_EVENT_"), event->status);
        rdma_ack_cm_event(event);
        take(id, type);
    }
}
