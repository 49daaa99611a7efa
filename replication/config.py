"""The settings of a partition's log and of the replication machinery, by Kafka's names.

`LogConfig` is what a topic can override. A topic setting takes its default from the broker-wide settings named as its
synonyms, in that order of precedence. `ReplicationConfig` holds what concerns all logs of a broker.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from ottla.wire.settings import (
    DOUBLE_MAX,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    InvalidSetting,
    Synonym,
    field_name,
    parse_value,
    setting,
    settings_of,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MIB = 1024 * 1024

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_THROTTLED = re.compile(r"([0-9]+:[0-9]+)?")

_STRATEGIES = "io.confluent.kafka.serializers.subject."
TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = SUBJECT_NAME_STRATEGIES = (
    f"{_STRATEGIES}TopicNameStrategy",
    f"{_STRATEGIES}RecordNameStrategy",
    f"{_STRATEGIES}TopicRecordNameStrategy",
)
"""Names of Confluent's strategies, which say under which subject a record's schema has to be registered."""


_positive = partial(setting, minimum=1)
_dynamic = partial(setting, dynamic="cluster-wide")
_without_effect = partial(setting, effective=False)
_from_next_append = partial(setting, on_change="Holds from the next append on.")
_compression = partial(setting, on_change="Holds from the next append on; what is stored stays as it is.")
_cleaner = partial(setting, on_change="Holds for the cleaner's next round.")
_retention = partial(
    setting,
    kind=LONG,
    on_change="Holds when old segments are looked for the next time, see log.retention.check.interval.ms.",
)
_throttled_rate = partial(_dynamic, LONG_MAX, kind=LONG, minimum=0, internal=True)


_local_retention = partial(
    _without_effect, -2, kind=LONG, minimum=-2, doc="Local share of a tiered log; there is no tiered storage."
)
_COPY_LAG = "How {} a tiered log's remote part may lag behind; there is no tiered storage."


def _timestamp_limit(default: int, side: str, time: str) -> Any:
    synonyms = (f"log.message.timestamp.{side}.max.ms",)
    doc = f"How far a record's timestamp may lie in the {time}."
    return _from_next_append(default, kind=LONG, minimum=0, synonyms=synonyms, doc=doc)


def _gzip_level(level: int) -> str | None:
    return None if 1 <= level <= 9 or level == -1 else "Value must be between 1 and 9 or equal to -1"


def _throttled_replicas(name: str) -> Any:
    def check(replicas: tuple[str, ...]) -> str | None:
        if all(map(_THROTTLED.fullmatch, replicas)) or "".join(replicas) == "*":
            return None
        form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        return f"{name} must be the literal '*' or a list of replicas in the following format: {form}"

    doc = "Replicas whose replication traffic is throttled, as partition:broker pairs or '*'."
    return setting((), kind=LIST, check=check, doc=doc, on_change="Holds from the next fetch of a follower on.")


# Internal, because Kafka describes no such settings: they are shown for topics that have them.
def _schema_validation(part: str) -> Any:
    doc = f"Whether records are refused whose {part} has no id of a schema that is registered for the topic."
    return setting(False, internal=True, doc=doc, on_change="Holds from the next append on.")


def _subject_name_strategy(part: str) -> Any:
    doc = f"How the subject of a {part}'s schema is named, if confluent.{part}.schema.validation is true."
    return setting(
        TOPIC_NAME, choices=SUBJECT_NAME_STRATEGIES, internal=True, doc=doc, on_change="Holds from the next append on."
    )


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """A topic's settings; settings that the topic does not set have their defaults."""

    cleanup_policy: tuple[str, ...] = setting(
        ("delete",),
        choices=("compact", "delete"),
        synonyms=("log.cleanup.policy",),
        doc="What happens to old segments: 'delete' drops them by age and size, 'compact' keeps the last value per key.",
        on_change="Holds when old segments or logs to compact are looked for the next time; a compacted topic refuses records without a key at once.",
    )
    compression_gzip_level: int = _compression(
        -1, check=_gzip_level, synonyms=("compression.gzip.level",), doc="Level used when the broker writes gzip."
    )
    compression_lz4_level: int = _compression(
        9, minimum=1, maximum=17, synonyms=("compression.lz4.level",), doc="Level used when the broker writes lz4."
    )
    compression_type: str = _compression(
        "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=("compression.type",),
        doc="Codec of stored batches; 'producer' keeps what the producer chose.",
    )
    compression_zstd_level: int = _compression(
        3,
        minimum=-131072,
        maximum=22,
        synonyms=("compression.zstd.level",),
        doc="Level used when the broker writes zstd.",
    )
    confluent_key_schema_validation: bool = _schema_validation("key")
    confluent_key_subject_name_strategy: str = _subject_name_strategy("key")
    confluent_value_schema_validation: bool = _schema_validation("value")
    confluent_value_subject_name_strategy: str = _subject_name_strategy("value")
    delete_retention_ms: int = setting(
        DAY_MS,
        kind=LONG,
        minimum=0,
        synonyms=("log.cleaner.delete.retention.ms",),
        doc="How long a compacted topic keeps deletion markers.",
        on_change="Holds for the next compaction that finds a marker for the first time; markers that were found keep their time.",
    )
    errors_deadletterqueue_group_enable: bool = setting(
        False,
        doc="Whether share groups may write records that nobody could process to this topic.",
        on_change="Holds for the next record that goes to a dead-letter queue.",
    )
    file_delete_delay_ms: int = setting(
        MINUTE_MS,
        kind=LONG,
        minimum=0,
        synonyms=("log.segment.delete.delay.ms",),
        doc="Time between giving up a file and removing it from disk.",
        on_change="Holds for files that are given up from now on.",
    )
    flush_messages: int = setting(
        LONG_MAX,
        kind=LONG,
        minimum=1,
        synonyms=("log.flush.interval.messages",),
        doc="Force appended records to disk after this many; acknowledgements wait for it.",
        on_change="Holds from the next append on: with any value but the largest, each append is forced to disk before its acknowledgement.",
    )
    flush_ms: int = setting(
        LONG_MAX,
        kind=LONG,
        minimum=0,
        synonyms=(
            Synonym(name="log.flush.interval.ms", default=None),
            Synonym(name="log.flush.scheduler.interval.ms", default=LONG_MAX, dynamic="read-only"),
        ),
        doc="Force appended records to disk after this time; acknowledgements wait for it.",
        on_change="Holds from the next append on: with any value but the largest, each append is forced to disk before its acknowledgement.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = _throttled_replicas(
        "follower.replication.throttled.replicas"
    )
    index_interval_bytes: int = setting(
        4096,
        minimum=0,
        synonyms=("log.index.interval.bytes",),
        doc="Bytes appended between two index entries.",
        on_change="Holds from the next append on; entries that are there stay.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = _throttled_replicas(
        "leader.replication.throttled.replicas"
    )
    local_retention_bytes: int = _local_retention(synonyms=("log.local.retention.bytes",))
    local_retention_ms: int = _local_retention(synonyms=("log.local.retention.ms",))
    max_compaction_lag_ms: int = setting(
        LONG_MAX,
        kind=LONG,
        minimum=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
        doc="Longest time a record may stay uncompacted.",
        on_change="Holds from the next append and the cleaner's next round on.",
    )
    max_decompressed_message_bytes: int = _from_next_append(
        INT_MAX - 8,
        minimum=1,
        maximum=INT_MAX - 8,
        synonyms=("max.decompressed.message.bytes",),
        doc="Largest record that a compressed batch may hold, when decompressed.",
    )
    max_message_bytes: int = setting(
        1_048_588,
        minimum=0,
        synonyms=("message.max.bytes",),
        doc="Largest record batch accepted, after compression.",
        on_change="Holds from the next append on; larger batches that are stored are served all the same.",
    )
    message_timestamp_after_max_ms: int = _timestamp_limit(HOUR_MS, "after", "future")
    message_timestamp_before_max_ms: int = _timestamp_limit(LONG_MAX, "before", "past")
    message_timestamp_type: str = setting(
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=("log.message.timestamp.type",),
        doc="Whether records keep the producer's timestamp or get the time of the append.",
        on_change="Holds from the next append on; records that are stored keep their timestamps.",
    )
    min_cleanable_dirty_ratio: float = _cleaner(
        0.5,
        minimum=0,
        maximum=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
        doc="Share of uncompacted bytes at which a log becomes worth compacting.",
    )
    min_compaction_lag_ms: int = _cleaner(
        0,
        kind=LONG,
        minimum=0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
        doc="Shortest time a record stays uncompacted.",
    )
    min_insync_replicas: int = setting(
        1,
        minimum=1,
        synonyms=("min.insync.replicas",),
        doc="Replicas that must hold a record before acks=all answers.",
        on_change="Taken up at once, also by requests that wait for replicas.",
    )
    preallocate: bool = _without_effect(
        False, synonyms=("log.preallocate",), doc="Reserve a new segment's file up front."
    )
    remote_copy_lag_bytes: int = _without_effect(
        -1, kind=LONG, minimum=-1, synonyms=("log.remote.copy.lag.bytes",), doc=_COPY_LAG.format("far")
    )
    remote_copy_lag_ms: int = _without_effect(
        0, kind=LONG, minimum=-1, synonyms=("log.remote.copy.lag.ms",), doc=_COPY_LAG.format("long")
    )
    remote_log_copy_disable: bool = _without_effect(
        False, doc="Whether nothing more of the topic is copied to tiered storage; there is none."
    )
    remote_log_delete_on_disable: bool = _without_effect(
        False, doc="Whether tiered storage forgets the topic when it is no longer used; there is none."
    )
    remote_storage_enable: bool = _without_effect(
        False, doc="Whether the topic is kept in tiered storage; there is none, so only false is accepted."
    )
    retention_bytes: int = _retention(
        -1,
        synonyms=("log.retention.bytes",),
        doc="Size of a partition above which its oldest segments are deleted; negative: no limit.",
    )
    retention_ms: int = _retention(
        7 * DAY_MS,
        minimum=-1,
        synonyms=(
            Synonym(name="log.retention.ms", default=None),
            Synonym(name="log.retention.minutes", kind=INT, default=None, factor=MINUTE_MS, dynamic="read-only"),
            Synonym(name="log.retention.hours", kind=INT, default=168, factor=HOUR_MS, dynamic="read-only"),
        ),
        doc="Age above which segments are deleted; -1: no limit.",
    )
    segment_bytes: int = setting(
        1024 * MIB,
        minimum=MIB,
        synonyms=("log.segment.bytes",),
        doc="Size at which a new segment is begun.",
        on_change="Holds from the next append on; segments that are full stay as they are.",
    )
    segment_index_bytes: int = setting(
        10 * MIB,
        minimum=4,
        synonyms=("log.index.size.max.bytes",),
        doc="Size at which a full index begins a new segment.",
        on_change="Holds from the next index entry on: a segment whose indexes are full then is followed by a new one.",
    )
    segment_jitter_ms: int = _from_next_append(
        0,
        kind=LONG,
        minimum=0,
        synonyms=(
            Synonym(name="log.roll.jitter.ms", default=None),
            Synonym(name="log.roll.jitter.hours", kind=INT, default=0, minimum=0, factor=HOUR_MS, dynamic="read-only"),
        ),
        doc="Random part taken off segment.ms, so that segments are not all begun at once.",
    )
    segment_ms: int = setting(
        7 * DAY_MS,
        kind=LONG,
        minimum=1,
        synonyms=(
            Synonym(name="log.roll.ms", default=None),
            Synonym(name="log.roll.hours", kind=INT, default=168, minimum=1, factor=HOUR_MS, dynamic="read-only"),
        ),
        doc="Age at which a new segment is begun even if the old one is not full.",
        on_change="Holds from the next append on: a segment that is too old then is followed by a new one.",
    )
    unclean_leader_election_enable: bool = setting(
        False,
        synonyms=("unclean.leader.election.enable",),
        doc="Whether a replica that lost records may lead when no other is left.",
        on_change="Taken up at once: the controller looks for partitions without a leader that may have one now.",
    )

    @property
    def validates_schemas(self) -> bool:
        return self.confluent_key_schema_validation or self.confluent_value_schema_validation

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleting(self) -> bool:
        return "delete" in self.cleanup_policy

    def with_overrides(self, overrides: Mapping[str, str]) -> Self:
        """Return this configuration with a topic's own settings on top. Raises InvalidSetting."""
        if not overrides:
            return self
        known = settings_of(type(self))
        for name in overrides:
            if name not in known:
                raise InvalidSetting(name, overrides[name], "unknown", message=f"Unknown topic config name: {name}")
        changed = replace(
            self, **{field_name(name): parse_value(known[name], text) for name, text in overrides.items()}
        )
        changed.check_consistency()
        return changed

    def check_consistency(self) -> None:
        """Check rules that concern several settings. Raises InvalidSetting."""
        lags = (self.min_compaction_lag_ms, self.max_compaction_lag_ms)
        if lags[0] > lags[1]:
            message = (
                f"conflict topic config setting min.compaction.lag.ms ({lags[0]}) > max.compaction.lag.ms ({lags[1]})"
            )
            raise InvalidSetting("min.compaction.lag.ms", lags[0], "conflict", message=message)
        if self.remote_storage_enable:
            message = (
                "Tiered Storage functionality is disabled in the broker."
                " Topic cannot be configured with remote log storage."
            )
            raise InvalidSetting("remote.storage.enable", True, "disabled", message=message)


@dataclass(frozen=True, kw_only=True)
class ReplicationConfig:
    """Settings of the replica manager and the controller."""

    num_partitions: int = _positive(1, doc="Partitions of a topic created without saying how many.")
    default_replication_factor: int = setting(1, doc="Replicas of a topic created without saying how many.")
    auto_create_topics_enable: bool = setting(True, doc="Whether asking for an unknown topic creates it.")
    delete_topic_enable: bool = setting(True, doc="Whether topics can be deleted.")
    auto_leader_rebalance_enable: bool = setting(
        True, doc="Whether the controller gives leadership back to preferred leaders."
    )
    leader_imbalance_check_interval_seconds: int = _positive(
        300, kind=LONG, doc="Time between two looks of the controller for leaders to give back."
    )
    leader_imbalance_per_broker_percentage: int = setting(
        10, internal=True, doc="Share of a broker's partitions that others may lead. Kafka 4 has it no more."
    )
    producer_id_expiration_ms: int = _dynamic(
        DAY_MS,
        minimum=1,
        doc="Time after which an idle producer's sequence numbers are forgotten.",
        on_change="Holds when idle producers are looked for the next time.",
    )
    transaction_partition_verification_enable: bool = _dynamic(
        True,
        doc="Whether a transaction's first batch in a partition needs the word of the transaction's coordinator.",
        on_change="Holds for the next transaction in each partition.",
    )
    producer_id_expiration_check_interval_ms: int = _positive(
        600_000, internal=True, doc="Time between two looks for producers to forget."
    )
    log_retention_check_interval_ms: int = _positive(
        300_000, kind=LONG, doc="Time between two looks for segments to delete."
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        MINUTE_MS, minimum=0, doc="Time between two writes of the recovery points."
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        MINUTE_MS, minimum=0, doc="Time between two writes of the log start offsets."
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        5000, kind=LONG, doc="Time between two writes of the high watermarks."
    )
    num_recovery_threads_per_data_dir: int = _dynamic(
        2,
        minimum=1,
        doc="Threads that recover and flush the logs of one data directory.",
        on_change="Nothing before the next start, which recovers logs with it.",
    )
    log_cleaner_enable: bool = setting(
        True, doc="Whether compacted topics are compacted, and those that are deleted as well give up old segments."
    )
    log_cleaner_threads: int = _dynamic(
        1,
        minimum=0,
        doc="Logs that are compacted at the same time; 0: none, as without a cleaner.",
        on_change="Holds for the cleaner's next round; if it was made smaller, for the next log already.",
    )
    log_cleaner_backoff_ms: int = _dynamic(
        15_000,
        kind=LONG,
        minimum=0,
        doc="Pause of the cleaner when nothing is to be compacted.",
        on_change="Holds for the cleaner's next pause; one that has begun is as long as it was.",
    )
    log_cleaner_dedupe_buffer_size: int = _dynamic(
        128 * MIB,
        kind=LONG,
        doc="Memory for the cleaner's maps of keys, of all logs that are compacted at the same time.",
        on_change="Holds for the next log that is compacted.",
    )
    log_cleaner_io_buffer_load_factor: float = _dynamic(
        0.9,
        doc="Share of the memory for maps of keys that is used.",
        on_change="Holds for the next log that is compacted.",
    )
    log_cleaner_io_buffer_size: int = _dynamic(
        524_288,
        minimum=0,
        doc="Memory for the cleaner's reads and writes, of all logs that are compacted at the same time. A batch that is"
        " larger is read all the same.",
        on_change="Holds for the next log that is compacted.",
    )
    log_cleaner_io_max_bytes_per_second: float = _dynamic(
        DOUBLE_MAX,
        doc="Bytes that the cleaner reads and writes per second; by default no limit.",
        on_change="Taken up at once, also by a compaction that has begun.",
    )
    replica_lag_time_max_ms: int = setting(
        30_000, kind=LONG, doc="Time after which a follower that has not caught up leaves the ISR."
    )
    replica_selector_class: str | None = setting(
        None,
        choices=(RACK_AWARE,),
        doc="How a leader chooses a follower for a consumer to read from; by default it chooses none.",
    )
    replica_fetch_max_bytes: int = setting(MIB, minimum=0, doc="Bytes a follower asks for per partition.")
    replica_fetch_response_max_bytes: int = setting(10 * MIB, minimum=0, doc="Bytes a follower asks for per request.")
    replica_fetch_min_bytes: int = setting(1, doc="Bytes a leader gathers before it answers a follower.")
    replica_fetch_wait_max_ms: int = setting(500, doc="Longest wait of a leader for replica.fetch.min.bytes.")
    replica_fetch_backoff_ms: int = setting(1000, minimum=0, doc="Pause of a follower after a failed fetch.")
    replica_socket_timeout_ms: int = setting(30_000, doc="Longest wait of a follower for its leader's answer.")
    replica_socket_receive_buffer_bytes: int = setting(
        65_536, doc="Receive buffer that a follower's socket has at least; the system may make it larger."
    )
    num_replica_fetchers: int = _dynamic(
        1,
        minimum=1,
        doc="Fetchers per source broker.",
        on_change="Taken up by each fetcher before its next fetch; partitions are spread over the new number.",
    )
    leader_replication_throttled_rate: int = _throttled_rate(
        doc="Bytes per second that throttled replicas send to their followers.",
        on_change="Holds from the next fetch for a throttled replica on.",
    )
    follower_replication_throttled_rate: int = _throttled_rate(
        doc="Bytes per second that throttled replicas fetch from their leaders.",
        on_change="Holds from the next fetch of a throttled follower on.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = _throttled_rate(
        doc="Bytes per second that replicas move between log directories.",
        on_change="Holds from the next piece that is copied on.",
    )
    replication_quota_window_num: int = _positive(11, doc="Windows that replication rates are measured over.")
    replication_quota_window_size_seconds: int = _positive(
        1, doc="Length of a window that replication rates are measured over."
    )
    alter_log_dirs_replication_quota_window_num: int = _positive(
        11, doc="Windows that the rate of moves between log directories is measured over."
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = _positive(
        1, doc="Length of a window that the rate of moves between log directories is measured over."
    )
    max_incremental_fetch_session_cache_slots: int = setting(1000, minimum=0, doc="Incremental fetch sessions kept.")
    max_request_partition_size_limit: int = _positive(
        2000, doc="Partitions in one page of a DescribeTopicPartitions answer."
    )
    fetch_max_bytes: int = setting(55 * MIB, minimum=1024, doc="Largest answer to a fetch request.")
