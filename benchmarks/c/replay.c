/* Sends one prebuilt request frame over and over, and checks and times the responses.
 *
 *     replay PORT FRAME CONNECTIONS DEPTH REQUESTS RESPONSE_SIZE [ERROR_CODE_OFFSET ...]
 *
 * FRAME is a file with one whole request frame; its correlation id is counted up. DEPTH requests are under way on each of
 * CONNECTIONS connections until REQUESTS are answered. Every response must have RESPONSE_SIZE bytes with its length
 * field, the right correlation id, and zero in the 16-bit error codes at the offsets given (within the first kilobyte).
 * The first tenth is for warming up; the rest is reported on standard output as JSON.
 */
#define _GNU_SOURCE
#include "net.h"
#include <sys/uio.h>
#include <time.h>

enum {
    LENGTH = 4,
    CORRELATION_ID = 8, /* in a request frame */
    PREFIX = 12,        /* what differs between two requests: up to and with the correlation id */
    DEPTH_LIMIT = 1024,
    HEAD_LIMIT = 1024, /* of a response, kept to be checked */
    ERROR_CODES = 16,
    DEADLINE_S = 60,
};

struct connection {
    int fd;
    uint32_t next_sent, next_answered; /* correlation ids */
    uint8_t prefix[PREFIX];
    size_t written; /* of the frame being sent; 0 between frames */
    uint8_t head[HEAD_LIMIT];
    size_t received; /* of the response being read */
    double sent_at[DEPTH_LIMIT];
    int waits_to_write;
};

static int epoll;
static struct bytes frame;
static uint32_t depth;
static size_t response_size, error_codes[ERROR_CODES], error_code_count;
static long wanted, started, answered;
static float *latencies;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void send_rest_of_frame(struct connection *to) {
    struct iovec parts[2] = {{to->prefix, PREFIX}, {frame.data + PREFIX, frame.size - PREFIX}};
    int first = to->written >= PREFIX;
    size_t skip = first ? to->written - PREFIX : to->written;
    parts[first].iov_base = (uint8_t *)parts[first].iov_base + skip;
    parts[first].iov_len -= skip;
    ssize_t sent = writev(to->fd, parts + first, 2 - first);
    if (sent < 0 && errno != EAGAIN) fail("write");
    if (sent > 0) to->written += (size_t)sent;
    if (to->written == frame.size) to->written = 0;
}

static void fill(struct connection *to) {
    for (;;) {
        if (to->written == 0) {
            if (to->next_sent - to->next_answered == depth || started == wanted) break;
            put_uint32(to->prefix + CORRELATION_ID, to->next_sent);
            to->sent_at[to->next_sent++ % DEPTH_LIMIT] = now();
            started++;
        }
        send_rest_of_frame(to);
        if (to->written != 0) break;
    }
    int waits = to->written != 0;
    if (waits != to->waits_to_write)
        watch(epoll, EPOLL_CTL_MOD, to->fd, waits ? EPOLLIN | EPOLLOUT : EPOLLIN, to);
    to->waits_to_write = waits;
}

static void check(struct connection *from) {
    errno = 0;
    if (LENGTH + get_uint32(from->head) != response_size) {
        fprintf(stderr, "a response of %u bytes, not %zu\n", LENGTH + get_uint32(from->head), response_size);
        exit(1);
    }
    if (get_uint32(from->head + LENGTH) != from->next_answered) fail("correlation id out of order");
    for (size_t i = 0; i < error_code_count; i++) {
        const uint8_t *code = from->head + error_codes[i];
        if (code[0] || code[1]) {
            fprintf(stderr, "error code %d at offset %zu\n", (int16_t)(code[0] << 8 | code[1]), error_codes[i]);
            exit(1);
        }
    }
}

static void complete(struct connection *from, double time) {
    check(from);
    latencies[answered++] = (float)(time - from->sent_at[from->next_answered++ % DEPTH_LIMIT]);
    from->received = 0;
}

/* Cuts what one read brought into responses. A length that lies shows when its response is checked, or as a stall. */
static void take(struct connection *from, const uint8_t *data, size_t size) {
    double time = now();
    while (size > 0) {
        size_t part = response_size - from->received < size ? response_size - from->received : size;
        if (from->received < HEAD_LIMIT) {
            size_t kept = HEAD_LIMIT - from->received < part ? HEAD_LIMIT - from->received : part;
            memcpy(from->head + from->received, data, kept);
        }
        from->received += part;
        data += part;
        size -= part;
        if (from->received == response_size) complete(from, time);
    }
}

static void receive(struct connection *from) {
    static uint8_t buffer[1 << 18];
    ssize_t got = recv(from->fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) fail("the other side closed the connection");
    take(from, buffer, (size_t)got);
}

static int compare(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static void report(long warm_up, double seconds) {
    long count = answered - warm_up;
    float *sample = latencies + warm_up;
    qsort(sample, (size_t)count, sizeof *sample, compare);
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"per_second\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n", count, seconds,
           (double)count / seconds, sample[count / 2] * 1e6, sample[count * 99 / 100] * 1e6);
}

static void start(int port, int connections) {
    for (int i = 0; i < connections; i++) {
        struct connection *new = calloc(1, sizeof *new);
        new->fd = connect_to_loopback(port);
        memcpy(new->prefix, frame.data, PREFIX);
        watch(epoll, EPOLL_CTL_ADD, new->fd, EPOLLIN, new);
        fill(new);
    }
}

static void run(double deadline) {
    struct epoll_event events[64];
    int ready = epoll_wait(epoll, events, 64, 1000);
    for (int i = 0; i < ready; i++) {
        struct connection *connection = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(connection);
        fill(connection);
    }
    errno = ETIMEDOUT;
    if (now() > deadline) fail("replay");
}

int main(int count, char **arguments) {
    if (count < 7 || count > 7 + ERROR_CODES)
        return fprintf(stderr, "usage: replay PORT FRAME CONNECTIONS DEPTH REQUESTS RESPONSE_SIZE [OFFSET ...]\n"), 2;
    frame = read_file(arguments[2]);
    depth = (uint32_t)atol(arguments[4]);
    wanted = atol(arguments[5]);
    response_size = (size_t)atol(arguments[6]);
    while ((int)error_code_count < count - 7) {
        error_codes[error_code_count] = (size_t)atol(arguments[7 + error_code_count]);
        if (error_codes[error_code_count++] > HEAD_LIMIT - 2) fail("an error code that far in is not kept");
    }
    if (depth < 1 || depth > DEPTH_LIMIT || wanted < 100 || response_size < 8) fail("arguments");
    latencies = malloc((size_t)wanted * sizeof *latencies);
    signal(SIGPIPE, SIG_IGN);
    epoll = epoll_create1(0);
    double deadline = now() + DEADLINE_S;
    start(atoi(arguments[1]), atoi(arguments[3]));
    long warm_up = wanted / 10, warm = 0;
    double since = 0;
    while (answered < wanted) {
        run(deadline);
        if (!warm && answered >= warm_up) since = now(), warm_up = answered, warm = 1;
    }
    report(warm_up, now() - since);
}
