/* Loads a broker through librdkafka, and says on standard output, as one line of JSON, how long it took.
 *
 *     load produce TOPIC PRODUCERS RECORDS SIZE [PROPERTY=VALUE ...]     one thread and one client each
 *     load consume TOPIC PARTITIONS RECORDS [PROPERTY=VALUE ...]         assigned, from the first record received to the last
 *     load both    TOPIC PARTITIONS RECORDS SIZE [PROPERTY=VALUE ...]    until the consumer has what the producer sends
 *     load latency TOPIC RATE SECONDS SIZE [PROPERTY=VALUE ...]          from handing a record over to its acknowledgement
 *     load transactions TOPIC PRODUCERS EACH SPREAD [PROPERTY=VALUE ...] so many one after the other, ten records of 100 B in each,
 *                                                                        which go to so many of the topic's PRODUCERS partitions
 *     load join    TOPIC [PROPERTY=VALUE ...]                            from a new client of a new group to its first record
 *     load mock    TOPIC PARTITIONS                                      librdkafka's own mock cluster, until SIGTERM
 *
 * Properties are librdkafka's; one that starts with "consumer:" or "producer:" is for that side only. Payloads are JSON-like
 * text, so that compression has something to do. A record that is refused fails the run.
 */
#define _GNU_SOURCE
#include "librdkafka.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000, MESSAGES = 2000, POOL_BYTES = 4 << 20, VALUES_MAX = 4096 };

static char **properties;
static const char *topic_name;
static long refused;
static uint8_t *pool;
static size_t pool_values, value_size;

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

/* --- clients ------------------------------------------------------------------------------------------------------- */

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) fail(error);
}

static void set_all(rd_kafka_conf_t *conf, const char *side) {
    for (char **each = properties; *each; each++) {
        char *text = strdup(*each), *value = strchr(text, '='), *colon = strchr(text, ':');
        if (!value) fail("a property without a value");
        *value++ = 0;
        if (colon && colon < value) {
            *colon++ = 0;
            if (strcmp(text, side) == 0) set(conf, colon, value);
        } else
            set(conf, text, value);
        free(text);
    }
}

static rd_kafka_t *client(int type, rd_kafka_conf_t *conf) {
    char error[512];
    set(conf, "log_level", "3");
    set_all(conf, type == RD_KAFKA_PRODUCER ? "producer" : "consumer");
    rd_kafka_t *new = rd_kafka_new(type, conf, error, sizeof error);
    if (!new) fail(error);
    return new;
}

static void count_refused(rd_kafka_t *from, const rd_kafka_message_t *message, void *unused) {
    (void)from, (void)unused;
    if (!message->err) return;
    if (__atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED) == 1) fprintf(stderr, "refused: %s\n", rd_kafka_err2str(message->err));
}

/* A topic whose leaders are known, so that the clock starts with connections open. */
static rd_kafka_topic_t *known_topic(rd_kafka_t *producer) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, topic_name, NULL);
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(producer, 0, topic, &metadata, 10000) != 0) fail("no metadata within 10 s");
    rd_kafka_metadata_destroy(metadata);
    return topic;
}

static rd_kafka_t *producer_of(rd_kafka_topic_t **topic, void (*reported)(rd_kafka_t *, const rd_kafka_message_t *, void *)) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_dr_msg_cb(conf, reported);
    if (reported == count_refused) set(conf, "delivery.report.only.error", "true");
    rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, conf);
    *topic = known_topic(producer);
    return producer;
}

static void make_values(size_t size) {
    value_size = size;
    pool_values = POOL_BYTES / size < VALUES_MAX ? POOL_BYTES / size : VALUES_MAX;
    pool = malloc(pool_values * size + 128);
    unsigned seed = 7;
    for (size_t at = 0; at < pool_values * size;)
        at += (size_t)snprintf((char *)pool + at, 100, "{\"id\":%d,\"name\":\"user-%d\",\"amount\":%d.%02d},", rand_r(&seed),
                               rand_r(&seed) % 1000, rand_r(&seed) % 100000, rand_r(&seed) % 100);
}

static void *value(long number) { return pool + (size_t)number % pool_values * value_size; }

/* --- produce ------------------------------------------------------------------------------------------------------- */

struct share {
    rd_kafka_t *producer;
    rd_kafka_topic_t *topic;
    long first, count;
    int number;
    pthread_t thread;
};

/* The values stay where they are until the end, so the library need not copy them. */
static void *send_share(void *argument) {
    struct share *share = argument;
    for (long i = share->first; i < share->first + share->count; i++)
        if (rd_kafka_produce(share->topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_BLOCK, value(i), value_size,
                             NULL, 0, NULL) != 0)
            fail("rd_kafka_produce");
    rd_kafka_flush(share->producer, PATIENCE_MS);
    if (rd_kafka_outq_len(share->producer) != 0) fail("records are left unsent");
    return NULL;
}

static void produce(int producers, long records) {
    struct share *shares = calloc((size_t)producers, sizeof *shares);
    for (int i = 0; i < producers; i++) {
        shares[i].first = records * i / producers;
        shares[i].count = records * (i + 1) / producers - shares[i].first;
        shares[i].producer = producer_of(&shares[i].topic, count_refused);
    }
    double began = now(), used = cpu();
    for (int i = 0; i < producers; i++) pthread_create(&shares[i].thread, NULL, send_share, &shares[i]);
    for (int i = 0; i < producers; i++) pthread_join(shares[i].thread, NULL);
    double seconds = now() - began;
    if (refused) fail("records were refused");
    printf("{\"records\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.3f}\n", records, seconds, cpu() - used);
}

/* --- consume ------------------------------------------------------------------------------------------------------- */

static rd_kafka_t *consumer_of(rd_kafka_queue_t **queue) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "group.id", "load");
    set(conf, "enable.auto.commit", "false");
    rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_poll_set_consumer(consumer);
    *queue = rd_kafka_queue_get_consumer(consumer);
    return consumer;
}

static void assign(rd_kafka_t *consumer, int partitions) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
    for (int i = 0; i < partitions; i++) rd_kafka_topic_partition_list_add(list, topic_name, i)->offset = RD_KAFKA_OFFSET_BEGINNING;
    if (rd_kafka_assign(consumer, list) != 0) fail("rd_kafka_assign");
}

/* Takes what comes until there are so many records. Returns the seconds from the first of them to the last: what comes before
 * the first is connecting, and timers of the library. */
static double take(rd_kafka_queue_t *queue, long records) {
    static rd_kafka_message_t *messages[MESSAGES];
    long got = 0;
    double first = 0, last = now();
    while (got < records) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 100, messages, MESSAGES);
        if (count > 0 && got == 0) first = now();
        for (ssize_t i = 0; i < count; i++) {
            if (messages[i]->err) fail(rd_kafka_err2str(messages[i]->err));
            rd_kafka_message_destroy(messages[i]);
        }
        if (count > 0) got += count, last = now();
        if (now() - last > PATIENCE_MS / 1000) fail("no records for a minute");
    }
    return last - first;
}

static void consume(int partitions, long records) {
    rd_kafka_queue_t *queue;
    double used = cpu();
    assign(consumer_of(&queue), partitions);
    double seconds = take(queue, records);
    printf("{\"records\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.3f}\n", records, seconds, cpu() - used);
}

static void both(int partitions, long records) {
    rd_kafka_queue_t *queue;
    struct share share = {.count = records};
    share.producer = producer_of(&share.topic, count_refused);
    rd_kafka_t *consumer = consumer_of(&queue);
    assign(consumer, partitions);
    struct share probe = {.producer = share.producer, .topic = share.topic, .count = 1};
    send_share(&probe);
    take(queue, 1); /* the consumer is at work */
    double began = now(), used = cpu();
    pthread_create(&share.thread, NULL, send_share, &share);
    take(queue, records);
    double seconds = now() - began;
    pthread_join(share.thread, NULL);
    if (refused) fail("records were refused");
    printf("{\"records\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.3f}\n", records, seconds, cpu() - used);
}

static void join(void) {
    rd_kafka_queue_t *queue;
    char group[64];
    snprintf(group, sizeof group, "group.id=join-%d-%ld", (int)getpid(), (long)time(NULL));
    char **given = properties;
    size_t count = 0;
    while (given[count]) count++;
    properties = calloc(count + 2, sizeof *properties);
    memcpy(properties, given, count * sizeof *properties);
    properties[count] = group;
    double began = now();
    rd_kafka_t *consumer = consumer_of(&queue);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic_name, RD_KAFKA_PARTITION_UA);
    if (rd_kafka_subscribe(consumer, list) != 0) fail("rd_kafka_subscribe");
    take(queue, 1);
    printf("{\"seconds\": %.6f}\n", now() - began);
    fflush(stdout);
    rd_kafka_consumer_close(consumer); /* leaves the group, or its next member would wait for this one */
}

/* --- latency ------------------------------------------------------------------------------------------------------- */

static float *latencies;
static long acknowledged;
static volatile int stopping;

/* Called by the polling thread, and at the end by the one that flushes as well. */
static void note_latency(rd_kafka_t *from, const rd_kafka_message_t *message, void *unused) {
    double handed_over;
    memcpy(&handed_over, &message->_private, sizeof handed_over);
    float passed = (float)(now() - handed_over);
    if (!message->err) latencies[__atomic_fetch_add(&acknowledged, 1, __ATOMIC_RELAXED)] = passed;
    count_refused(from, message, unused);
}

static void *poll_until_stopped(void *producer) {
    while (!stopping) rd_kafka_poll(producer, 50);
    return NULL;
}

static void wait_until(double due) {
    double early = due - now();
    if (early <= 0) return;
    struct timespec time = {(time_t)early, (long)((early - (double)(time_t)early) * 1e9)};
    nanosleep(&time, NULL);
}

static int compare(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static double percentile(const float *sorted, long count, double share) { return sorted[(long)((double)(count - 1) * share)] * 1e6; }

/* The first tenth is for warming up. A record that cannot be sent in time is sent late: its wait for that is not counted. */
static void latency(long rate, long seconds) {
    long records = rate * seconds;
    latencies = malloc((size_t)records * sizeof *latencies);
    prctl(PR_SET_TIMERSLACK, 1);
    rd_kafka_topic_t *topic;
    rd_kafka_t *producer = producer_of(&topic, note_latency);
    pthread_t poller;
    pthread_create(&poller, NULL, poll_until_stopped, producer);
    double began = now(), used = cpu();
    for (long i = 0; i < records; i++) {
        wait_until(began + (double)i / (double)rate);
        double handed_over = now();
        void *opaque;
        memcpy(&opaque, &handed_over, sizeof opaque);
        if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, value(i), value_size, NULL, 0, opaque) != 0) fail("the queue is full");
    }
    double sent = now() - began;
    rd_kafka_flush(producer, PATIENCE_MS);
    stopping = 1;
    pthread_join(poller, NULL);
    if (refused || acknowledged < records) fail("not every record was acknowledged");
    float *sample = latencies + records / 10;
    long count = records - records / 10;
    qsort(sample, (size_t)count, sizeof *sample, compare);
    printf("{\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, \"rate\": %.1f, \"client_cpu_s\": %.3f}\n",
           percentile(sample, count, .5), percentile(sample, count, .99), percentile(sample, count, .999), percentile(sample, count, 1),
           (double)records / sent, cpu() - used);
}

/* --- transactions -------------------------------------------------------------------------------------------------- */

enum { RECORDS_OF_A_TRANSACTION = 10, TRANSACTIONAL_BYTES = 100 };

static int partitions_of_topic, partitions_of_a_transaction;

static void need_success(rd_kafka_error_t *error) {
    if (error) fail(rd_kafka_error_string(error));
}

static rd_kafka_t *transactional_producer(rd_kafka_topic_t **topic, int number) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char id[64];
    snprintf(id, sizeof id, "load-%d-%d", (int)getpid(), number);
    set(conf, "transactional.id", id);
    rd_kafka_conf_set_dr_msg_cb(conf, count_refused);
    rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, conf);
    *topic = known_topic(producer);
    need_success(rd_kafka_init_transactions(producer, PATIENCE_MS));
    return producer;
}

static void transact(struct share *share, long number) {
    need_success(rd_kafka_begin_transaction(share->producer));
    for (int i = 0; i < RECORDS_OF_A_TRANSACTION; i++) {
        int32_t partition = (share->number + i % partitions_of_a_transaction) % partitions_of_topic;
        if (rd_kafka_produce(share->topic, partition, RD_KAFKA_MSG_F_BLOCK, value(number + i), value_size, NULL, 0, NULL) != 0)
            fail("rd_kafka_produce");
    }
    double began = now();
    need_success(rd_kafka_commit_transaction(share->producer, PATIENCE_MS));
    latencies[__atomic_fetch_add(&acknowledged, 1, __ATOMIC_RELAXED)] = (float)(now() - began);
}

static void *transact_share(void *argument) {
    struct share *share = argument;
    for (long i = share->first; i < share->first + share->count; i++) transact(share, i * RECORDS_OF_A_TRANSACTION);
    return NULL;
}

static void transact_all(struct share *shares, int producers) {
    acknowledged = 0;
    for (int i = 0; i < producers; i++) pthread_create(&shares[i].thread, NULL, transact_share, &shares[i]);
    for (int i = 0; i < producers; i++) pthread_join(shares[i].thread, NULL);
}

/* Before the clock starts each producer has made a tenth of them; a commit is measured from its call to its return. */
static void transactions(int producers, long each, int spread) {
    partitions_of_topic = producers;
    partitions_of_a_transaction = spread;
    make_values(TRANSACTIONAL_BYTES);
    struct share *shares = calloc((size_t)producers, sizeof *shares);
    long count = each * producers;
    latencies = malloc((size_t)count * sizeof *latencies);
    for (int i = 0; i < producers; i++) {
        shares[i].number = i;
        shares[i].producer = transactional_producer(&shares[i].topic, i);
        shares[i].count = each / 10 + 1;
    }
    transact_all(shares, producers);
    for (int i = 0; i < producers; i++) shares[i].first = each * i, shares[i].count = each;
    double began = now(), used = cpu();
    transact_all(shares, producers);
    double seconds = now() - began;
    if (refused) fail("records were refused");
    qsort(latencies, (size_t)count, sizeof *latencies, compare);
    printf("{\"transactions\": %ld, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"client_cpu_s\": %.3f}\n", count, seconds,
           percentile(latencies, count, .5), percentile(latencies, count, .99), cpu() - used);
}

/* --- mock ---------------------------------------------------------------------------------------------------------- */

static void mock(int partitions) {
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(client(RD_KAFKA_PRODUCER, rd_kafka_conf_new()), 1);
    if (!cluster || rd_kafka_mock_topic_create(cluster, topic_name, partitions, 1) != 0) fail("no mock cluster");
    printf("listening on %s\n", rd_kafka_mock_cluster_bootstraps(cluster));
    fflush(stdout);
    pause();
}

static void need(int count, int wanted) {
    if (count < wanted) fail("usage: see the top of load.c");
}

int main(int count, char **arguments) {
    need(count, 3);
    const char *what = arguments[1];
    topic_name = arguments[2];
    int numbers = !strcmp(what, "join") ? 0 : !strcmp(what, "mock") ? 1 : !strcmp(what, "consume") ? 2 : 3;
    need(count, 3 + numbers);
    long number[3] = {0};
    for (int i = 0; i < numbers; i++) number[i] = atol(arguments[3 + i]);
    properties = arguments + 3 + numbers;
    if (numbers == 3 && strcmp(what, "transactions")) make_values((size_t)number[2]);
    if (!strcmp(what, "produce")) produce((int)number[0], number[1]);
    else if (!strcmp(what, "consume")) consume((int)number[0], number[1]);
    else if (!strcmp(what, "both")) both((int)number[0], number[1]);
    else if (!strcmp(what, "latency")) latency(number[0], number[1]);
    else if (!strcmp(what, "transactions")) transactions((int)number[0], number[1], (int)number[2]);
    else if (!strcmp(what, "join")) join();
    else if (!strcmp(what, "mock")) mock((int)number[0]);
    else fail("unknown load");
    fflush(stdout);
    _exit(0); /* without waiting for connections to be closed in good order */
}
