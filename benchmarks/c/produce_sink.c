/* The least a broker can do with a produce request: receive the frame, check the CRC of its batch, write the batch to a
 * file, answer. What any broker reaches of this program's rate is what its own work leaves over.
 *
 *     produce_sink LOG RESPONSE BATCH_OFFSET
 *
 * LOG is the file to append to, RESPONSE holds one whole response frame (its correlation id is filled in), BATCH_OFFSET
 * is where the one record batch starts in each request frame. The port goes to standard output; SIGTERM ends it.
 */
#define _GNU_SOURCE
#include "crc32c.h"
#include "net.h"

enum {
    LENGTH = 4,          /* of a frame, before it */
    CORRELATION_ID = 8,  /* in a request frame, after the length, key and version */
    BATCH_LENGTH = 8,    /* in a record batch, after the base offset; counts what follows it */
    BATCH_CRC = 17,      /* after the length, leader epoch and magic */
    BATCH_CHECKED = 21,  /* from here to its end the CRC covers a batch */
    ANSWERS = 64,        /* sent at once */
};

struct connection {
    int fd;
    uint8_t *buffer;
    size_t size, used;
};

static int epoll, listener, log_file;
static struct bytes response;
static size_t batch_offset;

static void append(uint8_t *frame, size_t frame_size) {
    uint8_t *batch = frame + batch_offset;
    size_t batch_size = get_uint32(batch + BATCH_LENGTH) + BATCH_LENGTH + 4;
    if (batch_offset + batch_size > frame_size) fail("a batch is longer than its frame");
    if (crc32c(batch + BATCH_CHECKED, batch_size - BATCH_CHECKED) != get_uint32(batch + BATCH_CRC)) fail("wrong CRC");
    if (write(log_file, batch, batch_size) != (ssize_t)batch_size) fail("write");
}

/* The socket blocks for nobody here: answers are a hundred bytes, a client that has stopped reading is a failed run. */
static void answer(struct connection *to, const uint8_t *answers, size_t size) {
    if (size > 0 && send(to->fd, answers, size, 0) != (ssize_t)size) fail("send");
}

static void handle_frames(struct connection *from) {
    uint8_t *answers = alloca(ANSWERS * response.size);
    size_t at = 0, answered = 0;
    while (from->used - at >= LENGTH) {
        uint8_t *frame = from->buffer + at;
        size_t frame_size = LENGTH + get_uint32(frame);
        if (frame_size > from->size) {
            /* A frame that never fits: make room for it once. */
            from->size = frame_size;
            memmove(from->buffer, frame, from->used -= at);
            from->buffer = realloc(from->buffer, from->size);
            at = 0;
            break;
        }
        if (frame_size > from->used - at) break;
        append(frame, frame_size);
        uint8_t *next = answers + answered++ * response.size;
        memcpy(next, response.data, response.size);
        memcpy(next + LENGTH, frame + CORRELATION_ID, 4);
        if (answered == ANSWERS) answer(from, answers, answered * response.size), answered = 0;
        at += frame_size;
    }
    answer(from, answers, answered * response.size);
    if (at > 0) memmove(from->buffer, from->buffer + at, from->used -= at);
}

static void receive(struct connection *from) {
    ssize_t got = recv(from->fd, from->buffer + from->used, from->size - from->used, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        close(from->fd);
        free(from->buffer);
        free(from);
        return;
    }
    from->used += (size_t)got;
    handle_frames(from);
}

static void welcome(void) {
    struct connection *new = malloc(sizeof *new);
    *new = (struct connection){accept_one(listener), malloc(1 << 18), 1 << 18, 0};
    watch(epoll, EPOLL_CTL_ADD, new->fd, EPOLLIN, new);
}

int main(int count, char **arguments) {
    if (count != 4) return fprintf(stderr, "usage: produce_sink LOG RESPONSE BATCH_OFFSET\n"), 2;
    if (!crc32c_start()) fail("CRC-32C");
    log_file = open(arguments[1], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    if (log_file < 0) fail(arguments[1]);
    response = read_file(arguments[2]);
    batch_offset = (size_t)atol(arguments[3]);
    signal(SIGPIPE, SIG_IGN);
    epoll = epoll_create1(0);
    listener = listen_on_loopback();
    watch(epoll, EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
    for (;;) {
        struct epoll_event events[64];
        int ready = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < ready; i++) events[i].data.ptr ? receive(events[i].data.ptr) : welcome();
    }
}
