/* Many small clients at saturation: producers that send their next request when the last is answered, and consumers at the end.
 *
 *     saturate PORT SECONDS FETCH_OFFSET HIGH_WATERMARK CONSUMERS FRAMES FRAME ... PRODUCERS FRAMES FRAME ...
 *
 * Every FRAME is a file with one whole request; its correlation id is counted up. Clients of a side take the FRAMES of that side in turns.
 * FETCH_OFFSET is where the offset is in a fetch request, HIGH_WATERMARK where the high watermark is in its answer: a consumer asks
 * for what comes behind that. The first fifth of the time is for warming up. The waits of producers go to standard output as JSON.
 */
#define _GNU_SOURCE
#include "net.h"
#include <time.h>

enum { LENGTH = 4, CORRELATION_ID = 8, HEAD_LIMIT = 256, DRAIN_S = 60, ANSWERS_PER_SECOND_MAX = 200000, CLIENTS_MAX = 1000 };

struct client {
    int fd, is_consumer, waits_to_write;
    struct bytes frame; /* of its own, because its correlation id and offset change */
    size_t written;
    uint32_t correlation_id;
    uint8_t head[HEAD_LIMIT];
    size_t received;
    double sent_at;
};

static int epoll, fetch_offset, high_watermark, under_way;
static float *waits;
static long count, limit, fetches, all;
static double warm_from, end;
static struct client *client[CLIENTS_MAX];
static int clients;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void send_rest(struct client *to) {
    ssize_t sent = send(to->fd, to->frame.data + to->written, to->frame.size - to->written, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) fail("send");
    if (sent > 0) to->written += (size_t)sent;
    int waits = to->written < to->frame.size;
    if (waits != to->waits_to_write) watch(epoll, EPOLL_CTL_MOD, to->fd, waits ? EPOLLIN | EPOLLOUT : EPOLLIN, to);
    to->waits_to_write = waits;
}

static void ask(struct client *of) {
    put_uint32(of->frame.data + CORRELATION_ID, ++of->correlation_id);
    of->written = of->received = 0;
    of->sent_at = now();
    under_way += !of->is_consumer;
    send_rest(of);
}

static void answered(struct client *by) {
    double time = now();
    if (get_uint32(by->head + LENGTH) != by->correlation_id) fail("correlation id");
    if (by->is_consumer) {
        fetches++;
        memcpy(by->frame.data + fetch_offset, by->head + high_watermark, 8);
    } else {
        under_way--, all++;
        if (by->sent_at >= warm_from && count < limit) waits[count++] = (float)(time - by->sent_at);
    }
    if (time < end) ask(by);
}

static void receive(struct client *from) {
    static uint8_t buffer[1 << 18];
    ssize_t got = recv(from->fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) fail("the other side closed the connection");
    for (size_t i = 0; i < (size_t)got && from->received + i < HEAD_LIMIT; i++) from->head[from->received + i] = buffer[i];
    from->received += (size_t)got;
    if (from->received >= LENGTH && from->received >= LENGTH + get_uint32(from->head)) answered(from);
}

static struct client *connected(int port, struct bytes frame, int is_consumer) {
    struct client *new = calloc(1, sizeof *new);
    new->fd = connect_to_loopback(port);
    new->is_consumer = is_consumer;
    new->frame.size = frame.size;
    new->frame.data = memcpy(malloc(frame.size), frame.data, frame.size);
    watch(epoll, EPOLL_CTL_ADD, new->fd, EPOLLIN, new);
    return new;
}

static int compare(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static double at(double share) { return waits[(long)((double)(count - 1) * share)] * 1e6; }

/* Connects the clients of one side; returns the arguments behind it. */
static char **connect_all(int port, int is_consumer, char **argument) {
    int count = atoi(argument[0]), frames = atoi(argument[1]);
    for (int i = 0; i < count; i++) {
        if (clients == CLIENTS_MAX) fail("so many clients");
        client[clients++] = connected(port, read_file(argument[2 + i % frames]), is_consumer);
    }
    return argument + 2 + frames;
}

static void run(void) {
    struct epoll_event events[256];
    int ready = epoll_wait(epoll, events, 256, 100);
    for (int i = 0; i < ready; i++) {
        struct client *one = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(one);
        if (one->written < one->frame.size) send_rest(one);
    }
    errno = ETIMEDOUT;
    if (now() > end + DRAIN_S) fail("an answer");
}

int main(int arguments, char **argument) {
    if (arguments < 11) return fprintf(stderr, "usage: see the head of saturate.c\n"), 2;
    double seconds = atof(argument[2]);
    fetch_offset = atoi(argument[3]), high_watermark = atoi(argument[4]);
    limit = (long)(seconds * ANSWERS_PER_SECOND_MAX);
    waits = malloc((size_t)limit * sizeof *waits);
    epoll = epoll_create1(0);
    connect_all(atoi(argument[1]), 0, connect_all(atoi(argument[1]), 1, argument + 5));
    warm_from = now() + seconds / 5, end = now() + seconds;
    for (int i = 0; i < clients; i++) ask(client[i]);
    while (now() < end || under_way) run();
    if (!count) fail("no answers");
    qsort(waits, (size_t)count, sizeof *waits, compare);
    printf("{\"per_second\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, \"answers\": %ld, \"fetches\": %ld}\n",
           (double)count / (seconds * 4 / 5), at(.5), at(.99), at(.999), at(1), all, fetches);
}
