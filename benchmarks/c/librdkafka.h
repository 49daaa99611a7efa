/* The part of librdkafka's C interface that load.c uses, declared here because the library comes with confluent-kafka's
 * wheel, which has no headers. The interface is stable: names, values and layouts are those of librdkafka 2.x. */
#ifndef LIBRDKAFKA_H
#define LIBRDKAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_mock_cluster_s rd_kafka_mock_cluster_t;

enum { RD_KAFKA_PRODUCER, RD_KAFKA_CONSUMER };
enum { RD_KAFKA_MSG_F_COPY = 2, RD_KAFKA_MSG_F_BLOCK = 4 };
enum { RD_KAFKA_PARTITION_UA = -1, RD_KAFKA_CONF_OK = 0 };
#define RD_KAFKA_OFFSET_BEGINNING (-2)

typedef struct rd_kafka_message_s {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

typedef struct rd_kafka_topic_partition_s {
    char *topic;
    int32_t partition;
    int64_t offset;
    void *metadata;
    size_t metadata_size;
    void *opaque;
    int err;
    void *_private;
} rd_kafka_topic_partition_t;

typedef struct rd_kafka_topic_partition_list_s {
    int cnt;
    int size;
    rd_kafka_topic_partition_t *elems;
} rd_kafka_topic_partition_list_t;

struct rd_kafka_metadata;

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *conf, const char *name, const char *value, char *error, size_t error_size);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *conf, void (*reported)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *conf, char *error, size_t error_size);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *client, const char *name, rd_kafka_topic_conf_t *conf);
int rd_kafka_metadata(rd_kafka_t *client, int all, rd_kafka_topic_t *only, const struct rd_kafka_metadata **found, int timeout_ms);
void rd_kafka_metadata_destroy(const struct rd_kafka_metadata *metadata);
int rd_kafka_produce(rd_kafka_topic_t *topic, int32_t partition, int flags, void *payload, size_t size, const void *key,
                     size_t key_size, void *opaque);
int rd_kafka_poll(rd_kafka_t *client, int timeout_ms);
int rd_kafka_flush(rd_kafka_t *client, int timeout_ms);
int rd_kafka_outq_len(rd_kafka_t *client);
const char *rd_kafka_err2str(int error);
const char *rd_kafka_version_str(void);
const char *rd_kafka_error_string(const rd_kafka_error_t *error);
rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *producer, int timeout_ms);
rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *producer);
rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *producer, int timeout_ms);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int size);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *list, const char *topic,
                                                              int32_t partition);
int rd_kafka_assign(rd_kafka_t *client, const rd_kafka_topic_partition_list_t *partitions);
int rd_kafka_subscribe(rd_kafka_t *client, const rd_kafka_topic_partition_list_t *topics);
int rd_kafka_poll_set_consumer(rd_kafka_t *client);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *client);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *queue, int timeout_ms, rd_kafka_message_t **messages, size_t size);
void rd_kafka_message_destroy(rd_kafka_message_t *message);
int rd_kafka_consumer_close(rd_kafka_t *client);
void rd_kafka_destroy(rd_kafka_t *client);
rd_kafka_mock_cluster_t *rd_kafka_mock_cluster_new(rd_kafka_t *client, int brokers);
const char *rd_kafka_mock_cluster_bootstraps(const rd_kafka_mock_cluster_t *cluster);
int rd_kafka_mock_topic_create(rd_kafka_mock_cluster_t *cluster, const char *topic, int partitions, int replication_factor);

#endif
