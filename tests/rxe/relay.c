/* relay TAP SOCKET PEER CONTROL REPLY: carries Ethernet frames between a tap device, Pagewire's side, and the Unix datagram socket
 * PEER, which a virtual machine with soft-RoCE reads (QEMU's `-netdev dgram`), and does to RoCEv2 packets what a bad network
 * does. It never changes a packet.
 *
 * CONTROL is a FIFO with one line for each test: rules by sender, such as `rxe:drop=0.01,duplicate=0.01,delay=0.01,seed=3` or
 * `pagewire:lose_middle=20` or `rxe:lose_first=1` (of each kind of message to queue pair 1), with `;` between the senders, or `none`. The answer in the FIFO REPLY is one line with what was counted
 * under the rules before, as `rxe.drop=4 ... pagewire.sequence_naks=2`. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define FRAME 9000
#define HELD 64
#define RECENT 4096
#define ROCE_PORT 4791
/* Microseconds that a delayed packet is held: others overtake it. */
#define LEAST_DELAY 2000
#define MORE_DELAY 18000

#define REQUIRE(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "relay: %s: %s\n", #condition, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

/* The opcodes of packets of RC and UC inside a message, which a later one of the message follows. */
static int is_middle(uint8_t opcode)
{
    uint8_t transport = opcode >> 5, operation = opcode & 0x1f;
    return transport < 2 && (operation == 0x01 || operation == 0x07);
}

static int is_acknowledgement(uint8_t opcode)
{
    return opcode == 0x11;
}

/* Behind the headers of BTH and DETH: the datagram, its `TransactionID` and `AttributeID` (section 13.4.2). */
enum { DATAGRAM = 12 + 8, TRANSACTION = DATAGRAM + 8, KIND = DATAGRAM + 16, DATAGRAM_LENGTH = 256 };

/* The kind of a message to queue pair 1 (`AttributeID` of the datagram, section 12.6.2), or -1. Those of the connection manager
 * begin with 0x10. */
static int management_kind(const uint8_t *bth, size_t length)
{
    int is_general = bth[0] == 0x64 && bth[5] == 0 && bth[6] == 0 && bth[7] == 1;
    return is_general && length >= DATAGRAM + DATAGRAM_LENGTH && bth[KIND] == 0 ? bth[KIND + 1] : -1;
}

enum count { PACKETS, DROP, DUPLICATE, DELAY, LOSE_MIDDLE, LOSE_FIRST, REPEATED, SEQUENCE_NAKS, RNR_NAKS, COUNTS };
static const char *const count_names[COUNTS] = { "packets", "drop", "duplicate", "delay", "lose_middle", "lose_first",
                                                 "repeated", "sequence_naks", "rnr_naks" };

/* Of what one side sends. */
struct sender {
    const char *name;
    double drop, duplicate, delay;
    unsigned lose_middle, middles;
    /* Of each kind of message to queue pair 1 so many are lost first. */
    unsigned lose_first, messages[256];
    /* The last REQs and DREQs, by transaction and kind. */
    uint64_t recent[RECENT];
    unsigned next_recent;
    uint64_t random;
    unsigned counts[COUNTS];
};
static struct sender senders[2] = { { .name = "pagewire" }, { .name = "rxe" } };

struct held {
    uint64_t due;
    int from;
    size_t length;
    uint8_t bytes[FRAME];
};
static struct held held[HELD];
static int tap, guest;
static struct sockaddr_un peer = { .sun_family = AF_UNIX };

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

static double drawn(struct sender *sender)
{
    sender->random = sender->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(sender->random >> 11) / (double)(1ull << 53);
}

/* From Pagewire (0) to the guest or back. */
static void deliver(int from, const uint8_t *frame, size_t length)
{
    if (from == 0) {
        /* Before it listens the guest has no network. */
        REQUIRE(sendto(guest, frame, length, 0, (struct sockaddr *)&peer, sizeof peer) >= 0 || errno == ENOENT ||
                errno == ECONNREFUSED);
    } else {
        REQUIRE(write(tap, frame, length) == (ssize_t)length || errno == EIO);
    }
}

/* The BTH of a frame, if it is a RoCEv2 packet. */
static const uint8_t *bth_of(const uint8_t *frame, size_t length)
{
    size_t ip = 14, udp;
    if (length < ip + 20)
        return NULL;
    uint32_t type = (uint32_t)frame[12] << 8 | frame[13];
    if (type == 0x0800 && frame[ip + 9] == 17)
        udp = ip + (frame[ip] & 15u) * 4;
    else if (type == 0x86dd && frame[ip + 6] == 17)
        udp = ip + 40;
    else
        return NULL;
    /* The headers of UDP and IB, and the ICRC. */
    if (length < udp + 8 + 12 + 4)
        return NULL;
    uint32_t port = (uint32_t)frame[udp + 2] << 8 | frame[udp + 3];
    return port == ROCE_PORT ? frame + udp + 8 : NULL;
}

static void count_naks(struct sender *sender, const uint8_t *bth)
{
    if (!is_acknowledgement(bth[0]))
        return;
    /* The syndrome of the AETH (section 9.7.5.2.4). */
    uint8_t syndrome = bth[12];
    sender->counts[SEQUENCE_NAKS] += syndrome == 0x60;
    sender->counts[RNR_NAKS] += syndrome >> 5 == 1;
}

static int hold(int from, const uint8_t *frame, size_t length)
{
    for (int i = 0; i < HELD; i++) {
        if (held[i].length == 0 && length <= FRAME) {
            held[i].due = now() + LEAST_DELAY + (uint64_t)(drawn(&senders[from]) * MORE_DELAY);
            held[i].from = from;
            held[i].length = length;
            memcpy(held[i].bytes, frame, length);
            return 1;
        }
    }
    return 0;
}

/* A REQ or DREQ that the sender has sent before: it was lost, or its answer. Other messages answer repeated ones. */
static void count_repeated(struct sender *sender, const uint8_t *bth, int kind)
{
    enum { REQ = 0x10, DREQ = 0x15 };
    uint64_t name = (uint64_t)kind;
    if (kind != REQ && kind != DREQ)
        return;
    for (int i = 0; i < 8; i++)
        name = name * 1099511628211u + bth[TRANSACTION + i];
    for (unsigned i = 0; i < RECENT; i++)
        if (sender->recent[i] == name) {
            sender->counts[REPEATED]++;
            return;
        }
    sender->recent[sender->next_recent++ % RECENT] = name;
}

/* Whether a packet is one of those that a rule names. */
static int is_to_be_lost(struct sender *sender, const uint8_t *bth, size_t length)
{
    int kind = management_kind(bth, length);
    count_repeated(sender, bth, kind);
    if (kind >= 0 && sender->messages[kind]++ < sender->lose_first) {
        sender->counts[LOSE_FIRST]++;
        return 1;
    }
    if (sender->lose_middle && is_middle(bth[0]) && ++sender->middles % sender->lose_middle == 0) {
        sender->counts[LOSE_MIDDLE]++;
        return 1;
    }
    if (drawn(sender) < sender->drop) {
        sender->counts[DROP]++;
        return 1;
    }
    return 0;
}

static void carry(int from, const uint8_t *frame, size_t length)
{
    struct sender *sender = &senders[from];
    const uint8_t *bth = bth_of(frame, length);
    if (!bth) {
        deliver(from, frame, length);
        return;
    }
    sender->counts[PACKETS]++;
    count_naks(sender, bth);
    if (is_to_be_lost(sender, bth, length - (size_t)(bth - frame)))
        return;
    if (drawn(sender) < sender->duplicate) {
        sender->counts[DUPLICATE]++;
        deliver(from, frame, length);
    }
    if (drawn(sender) < sender->delay && hold(from, frame, length)) {
        sender->counts[DELAY]++;
        return;
    }
    deliver(from, frame, length);
}

/* Delivers what was held long enough; gives the milliseconds until there is more, or -1. */
static int release(void)
{
    uint64_t time = now(), next = UINT64_MAX;
    for (int i = 0; i < HELD; i++) {
        if (held[i].length && held[i].due <= time) {
            deliver(held[i].from, held[i].bytes, held[i].length);
            held[i].length = 0;
        } else if (held[i].length && held[i].due < next) {
            next = held[i].due;
        }
    }
    return next == UINT64_MAX ? -1 : (int)((next - time) / 1000) + 1;
}

static void set_rule(struct sender *sender, const char *name, const char *value)
{
    if (!strcmp(name, "drop"))
        sender->drop = atof(value);
    else if (!strcmp(name, "duplicate"))
        sender->duplicate = atof(value);
    else if (!strcmp(name, "delay"))
        sender->delay = atof(value);
    else if (!strcmp(name, "lose_middle"))
        sender->lose_middle = (unsigned)atoi(value);
    else if (!strcmp(name, "lose_first"))
        sender->lose_first = (unsigned)atoi(value);
    else if (!strcmp(name, "seed"))
        sender->random = (uint64_t)atoll(value);
    else {
        fprintf(stderr, "relay: no rule is called '%s'\n", name);
        exit(1);
    }
}

static void set_rules(char *line)
{
    char *rest = line, *part;
    while ((part = strsep(&rest, ";"))) {
        char *rules = part, *name = strsep(&rules, ":"), *rule;
        struct sender *sender = !strcmp(name, senders[0].name) ? &senders[0] : &senders[1];
        if (!strcmp(name, "none"))
            continue;
        REQUIRE(!strcmp(name, sender->name));
        while ((rule = strsep(&rules, ","))) {
            char *value = strchr(rule, '=');
            REQUIRE(value);
            *value = 0;
            set_rule(sender, rule, value + 1);
        }
    }
}

/* One line of CONTROL. */
static void obey(char *line, int reply)
{
    char answer[1024];
    int length = 0;
    for (int i = 0; i < 2; i++) {
        for (int count = 0; count < COUNTS; count++)
            length += snprintf(answer + length, sizeof answer - (size_t)length, "%s.%s=%u ", senders[i].name, count_names[count],
                               senders[i].counts[count]);
        senders[i] = (struct sender){ .name = senders[i].name };
    }
    set_rules(line);
    answer[length - 1] = '\n';
    REQUIRE(write(reply, answer, (size_t)length) == length);
}

static void read_control(int control, int reply)
{
    static char line[1024];
    static size_t length;
    ssize_t more = read(control, line + length, sizeof line - 1 - length);
    REQUIRE(more > 0);
    length += (size_t)more;
    line[length] = 0;
    char *end = strchr(line, '\n');
    if (!end)
        return;
    *end = 0;
    obey(line, reply);
    length = 0;
}

static int open_tap(const char *name)
{
    struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };
    int descriptor = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(descriptor >= 0);
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    REQUIRE(ioctl(descriptor, TUNSETIFF, &request) == 0);
    return descriptor;
}

static int open_socket(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    REQUIRE(descriptor >= 0 && bind(descriptor, (struct sockaddr *)&address, sizeof address) == 0);
    return descriptor;
}

int main(int count, char **words)
{
    static uint8_t frame[FRAME];
    if (count != 6) {
        fprintf(stderr, "usage: relay TAP SOCKET PEER CONTROL REPLY\n");
        return 2;
    }
    tap = open_tap(words[1]);
    guest = open_socket(words[2]);
    strncpy(peer.sun_path, words[3], sizeof peer.sun_path - 1);
    int control = open(words[4], O_RDWR | O_CLOEXEC), reply = open(words[5], O_RDWR | O_CLOEXEC);
    REQUIRE(control >= 0 && reply >= 0);
    struct pollfd ready[3] = { { tap, POLLIN, 0 }, { guest, POLLIN, 0 }, { control, POLLIN, 0 } };
    for (;;) {
        REQUIRE(poll(ready, 3, release()) >= 0);
        for (int from = 0; from < 2; from++) {
            if (!(ready[from].revents & POLLIN))
                continue;
            ssize_t length = read(ready[from].fd, frame, sizeof frame);
            REQUIRE(length >= 0 || errno == EAGAIN);
            if (length > 0)
                carry(from, frame, (size_t)length);
        }
        if (ready[2].revents & POLLIN)
            read_control(control, reply);
    }
}
