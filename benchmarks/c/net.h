/* What the three programs share: big-endian integers, a listener on a free loopback port, one epoll loop. */
#ifndef NET_H
#define NET_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static inline uint32_t get_uint32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return ntohl(value);
}

static inline void put_uint32(uint8_t *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, sizeof value);
}

struct bytes {
    uint8_t *data;
    size_t size;
};

static inline struct bytes read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    struct bytes content = {NULL, (size_t)ftell(file)};
    rewind(file);
    content.data = malloc(content.size + 1);
    if (fread(content.data, 1, content.size, file) != content.size) fail(path);
    fclose(file);
    return content;
}

static inline void no_delay(int fd) {
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static inline void watch(int epoll, int operation, int fd, uint32_t events, void *owner) {
    struct epoll_event event = {.events = events, .data.ptr = owner};
    if (epoll_ctl(epoll, operation, fd, &event) != 0) fail("epoll_ctl");
}

/* Listens on a free port of the loopback interface and says which one on standard output. */
static inline int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 128) != 0) fail("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static inline int accept_one(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0) fail("accept");
    no_delay(fd);
    return fd;
}

static inline int connect_to_loopback(int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) fail("connect");
    no_delay(fd);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

#endif
