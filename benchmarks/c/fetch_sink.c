/* The least a broker can do with a fetch request: read it, and answer with a piece of a file that never enters user space.
 *
 *     fetch_sink HEAD RECORDS TAIL
 *
 * A response is HEAD (with its length, and the correlation id filled in), the whole file RECORDS by sendfile, and TAIL.
 * The port goes to standard output; SIGTERM ends it.
 */
#define _GNU_SOURCE
#include "net.h"
#include <sys/sendfile.h>
#include <sys/stat.h>

enum { LENGTH = 4, CORRELATION_ID = 8, REQUEST_LIMIT = 8192 };

struct connection {
    int fd;
    uint8_t request[REQUEST_LIMIT];
    size_t used;
    int answering;
    uint32_t correlation_id;
    size_t head_sent;
    off_t records_sent;
    size_t tail_sent;
};

static int epoll, listener, records;
static off_t records_size;
static struct bytes head, tail;

/* Sends what is left of a part; returns whether all of it is out. */
static int send_part(int fd, const struct bytes *part, size_t *sent, int flags) {
    while (*sent < part->size) {
        ssize_t count = send(fd, part->data + *sent, part->size - *sent, flags);
        if (count < 0 && errno == EAGAIN) return 0;
        if (count <= 0) fail("send");
        *sent += (size_t)count;
    }
    return 1;
}

static int send_records(int fd, off_t *sent) {
    while (*sent < records_size) {
        ssize_t count = sendfile(fd, records, sent, (size_t)(records_size - *sent));
        if (count < 0 && errno == EAGAIN) return 0;
        if (count <= 0) fail("sendfile");
    }
    return 1;
}

/* Goes on with the response; returns whether it is complete. */
static int send_response(struct connection *to) {
    memcpy(head.data + LENGTH, &to->correlation_id, 4);
    return send_part(to->fd, &head, &to->head_sent, MSG_MORE) && send_records(to->fd, &to->records_sent) &&
           send_part(to->fd, &tail, &to->tail_sent, 0);
}

/* Starts the next response if a whole request is there. */
static int begin(struct connection *to) {
    if (to->used < LENGTH) return 0;
    size_t size = LENGTH + get_uint32(to->request);
    if (size > REQUEST_LIMIT) fail("a fetch request of this size is not expected");
    if (to->used < size) return 0;
    memcpy(&to->correlation_id, to->request + CORRELATION_ID, 4);
    memmove(to->request, to->request + size, to->used -= size);
    to->head_sent = to->tail_sent = 0;
    to->records_sent = 0;
    return 1;
}

static void serve(struct connection *to) {
    for (;;) {
        if (!to->answering && !(to->answering = begin(to))) break;
        if (!send_response(to)) break;
        to->answering = 0;
    }
    watch(epoll, EPOLL_CTL_MOD, to->fd, to->answering ? EPOLLOUT : EPOLLIN, to);
}

static void receive(struct connection *from) {
    ssize_t got = recv(from->fd, from->request + from->used, REQUEST_LIMIT - from->used, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        close(from->fd);
        free(from);
        return;
    }
    from->used += (size_t)got;
    serve(from);
}

static void welcome(void) {
    struct connection *new = calloc(1, sizeof *new);
    new->fd = accept_one(listener);
    watch(epoll, EPOLL_CTL_ADD, new->fd, EPOLLIN, new);
}

static void handle(const struct epoll_event *event) {
    struct connection *connection = event->data.ptr;
    if (!connection)
        welcome();
    else if (connection->answering)
        serve(connection);
    else
        receive(connection);
}

int main(int count, char **arguments) {
    if (count != 4) return fprintf(stderr, "usage: fetch_sink HEAD RECORDS TAIL\n"), 2;
    head = read_file(arguments[1]);
    tail = read_file(arguments[3]);
    records = open(arguments[2], O_RDONLY);
    if (records < 0) fail(arguments[2]);
    struct stat status;
    fstat(records, &status);
    records_size = status.st_size;
    signal(SIGPIPE, SIG_IGN);
    epoll = epoll_create1(0);
    listener = listen_on_loopback();
    watch(epoll, EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
    for (;;) {
        struct epoll_event events[64];
        int ready = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < ready; i++) handle(&events[i]);
    }
}
