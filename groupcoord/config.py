"""The settings of the coordinators of groups, transactions and share partitions, by Kafka's names."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from ottla.wire.settings import INT_MAX, LIST, LONG, SHORT, setting

_positive = partial(setting, minimum=1)
_assignment_interval = partial(
    setting,
    1000,
    minimum=0,
    dynamic="cluster-wide",
    on_change="Holds for the next assignment of each group that has no value of its own.",
)
_dead_letter = partial(
    setting, dynamic="cluster-wide", on_change="Holds for the next record that goes to a dead-letter queue."
)


def _bound(default: int, limit: str, group_type: str, *, minimum: int = 1, **details: Any) -> Any:
    doc = f"{limit} that a {group_type} group may be given."
    return setting(default, minimum=minimum, doc=doc, **details)


# Of the internal topics of coordinators.
def _partitions(topic: str) -> Any:
    return _positive(50, doc=f"Partitions of the {topic} topic.")


def _replicas(topic: str) -> Any:
    doc = f"Replicas of the {topic} topic; a broker that coordinates in process makes one."
    return _positive(3, kind=SHORT, doc=doc)


def _segment_bytes(topic: str) -> Any:
    return _positive(104_857_600, doc=f"Segment size of the {topic} topic.")


@dataclass(frozen=True, kw_only=True)
class StreamsGroupConfig:
    """Broker settings of streams groups."""

    group_streams_session_timeout_ms: int = _positive(
        45_000, doc="Time after which a member of a streams group is gone that does not heartbeat."
    )
    group_streams_heartbeat_interval_ms: int = _positive(
        5000, doc="Time between two heartbeats of a member of a streams group."
    )
    group_streams_max_size: int = _positive(INT_MAX, doc="Most members of one streams group.")
    group_streams_num_standby_replicas: int = setting(
        0, minimum=0, doc="Standby tasks for each task of a streams group that has state."
    )
    group_streams_initial_rebalance_delay_ms: int = setting(
        3000, minimum=0, doc="How long the first assignment of an empty streams group waits for more members."
    )
    group_streams_assignment_interval_ms: int = _assignment_interval(
        doc="Least time between two assignments of a streams group."
    )
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = setting(
        (), kind=LIST, doc="Client tags that every member of a streams group should have."
    )
    group_streams_task_offset_interval_ms: int = _positive(
        60_000, internal=True, doc="Time between two reports of where the states of tasks are."
    )
    group_streams_acceptable_recovery_lag: int = setting(
        10_000, kind=LONG, minimum=0, internal=True, doc="Lag of a state that is as good as none."
    )


@dataclass(frozen=True, kw_only=True)
class GroupConfig(StreamsGroupConfig):
    """Broker settings of classic groups and the offsets topic. Its base classes declare other group types' settings."""

    group_min_session_timeout_ms: int = setting(6000, doc="Shortest session timeout a member may ask for.")
    group_max_session_timeout_ms: int = setting(1_800_000, doc="Longest session timeout a member may ask for.")
    group_initial_rebalance_delay_ms: int = setting(
        3000,
        doc="How long the first rebalance of an empty group waits for more members. A start without a settings file sets 0.",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ("classic", "consumer", "streams"),
        choices=("consumer", "classic", "share", "streams"),
        ignore_case=True,
        doc="Kinds of groups that are served. classic has to be among them, and share is up to the feature share.version.",
    )
    group_max_size: int = _positive(INT_MAX, doc="Most members of one group.")
    group_consumer_max_size: int = _positive(INT_MAX, doc="Most members of one consumer group.")
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"),
        kind=LIST,
        choices=("uniform", "range"),
        doc="Assignors that members of consumer groups may ask for; the first is the default.",
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
        doc="Which way living groups may change between the classic and the consumer protocol.",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000,
        minimum=10_000,
        doc="Longest time between two looks for topics that regular expressions match.",
        internal=True,
    )
    offset_metadata_max_bytes: int = setting(4096, doc="Largest metadata text of a committed offset.")
    offsets_commit_timeout_ms: int = _positive(5000, doc="Longest wait for a commit to be replicated.")
    offsets_retention_minutes: int = _positive(10_080, doc="Minutes after which the offsets of an empty group expire.")
    offsets_retention_check_interval_ms: int = _positive(
        600_000, kind=LONG, doc="Time between two looks for expired offsets."
    )
    offsets_topic_num_partitions: int = _partitions("offsets")
    offsets_topic_replication_factor: int = _replicas("offsets")
    offsets_topic_segment_bytes: int = _segment_bytes("offsets")
    group_share_session_timeout_ms: int = _positive(
        45_000, doc="Silence after which a member of a share group is put out."
    )
    group_share_heartbeat_interval_ms: int = _positive(
        5000, doc="Time between two heartbeats of a member of a share group."
    )
    group_share_assignment_interval_ms: int = _assignment_interval(
        doc="Least time between two assignments of a share group."
    )
    group_share_max_size: int = _positive(200, maximum=1000, doc="Most members of a share group.")
    group_share_initialize_retry_interval_ms: int = _positive(
        30_000, doc="Time after which share partitions that were not initialized are initialized again.", internal=True
    )


@dataclass(frozen=True, kw_only=True)
class GroupBoundsConfig:
    """Broker settings with defaults and bounds of group settings. `group_settings.py` applies them."""

    group_consumer_session_timeout_ms: int = _positive(
        45_000, doc="Silence after which a member of a consumer group is taken to be gone."
    )
    group_consumer_min_session_timeout_ms: int = _bound(45_000, "Shortest session timeout", "consumer")
    group_consumer_max_session_timeout_ms: int = _bound(60_000, "Longest session timeout", "consumer")
    group_consumer_heartbeat_interval_ms: int = _positive(
        5000, doc="Time between two heartbeats of a member of a consumer group."
    )
    group_consumer_min_heartbeat_interval_ms: int = _bound(5000, "Shortest heartbeat interval", "consumer")
    group_consumer_max_heartbeat_interval_ms: int = _bound(15_000, "Longest heartbeat interval", "consumer")
    group_consumer_assignment_interval_ms: int = _assignment_interval(
        doc="Shortest time between two assignments of a consumer group."
    )
    group_consumer_min_assignment_interval_ms: int = _bound(0, "Shortest assignment interval", "consumer", minimum=0)
    group_consumer_max_assignment_interval_ms: int = _bound(
        15_000, "Longest assignment interval", "consumer", minimum=0
    )
    group_share_min_session_timeout_ms: int = _bound(45_000, "Shortest session timeout", "share")
    group_share_max_session_timeout_ms: int = _bound(60_000, "Longest session timeout", "share")
    group_share_min_heartbeat_interval_ms: int = _bound(5000, "Shortest heartbeat interval", "share")
    group_share_max_heartbeat_interval_ms: int = _bound(15_000, "Longest heartbeat interval", "share")
    group_share_min_assignment_interval_ms: int = _bound(0, "Shortest assignment interval", "share", minimum=0)
    group_share_max_assignment_interval_ms: int = _bound(15_000, "Longest assignment interval", "share", minimum=0)
    group_share_min_record_lock_duration_ms: int = _bound(
        15_000, "Shortest lock duration", "share", minimum=1000, maximum=30_000
    )
    group_share_max_record_lock_duration_ms: int = _bound(
        60_000, "Longest lock duration", "share", minimum=30_000, maximum=3_600_000
    )
    group_share_min_delivery_count_limit: int = _bound(
        2, "Smallest delivery count limit", "share", minimum=2, maximum=5
    )
    group_share_max_delivery_count_limit: int = _bound(
        10, "Largest delivery count limit", "share", minimum=5, maximum=25
    )
    group_share_min_partition_max_record_locks: int = _bound(
        100, "Fewest locks of a share partition", "share", minimum=100, maximum=2000
    )
    group_share_max_partition_max_record_locks: int = _bound(
        4000, "Most locks of a share partition", "share", minimum=2000, maximum=10_000
    )
    group_streams_min_session_timeout_ms: int = _bound(45_000, "Shortest session timeout", "streams")
    group_streams_max_session_timeout_ms: int = _bound(60_000, "Longest session timeout", "streams")
    group_streams_min_heartbeat_interval_ms: int = _bound(5000, "Shortest heartbeat interval", "streams")
    group_streams_max_heartbeat_interval_ms: int = _bound(15_000, "Longest heartbeat interval", "streams")
    group_streams_min_assignment_interval_ms: int = _bound(0, "Shortest assignment interval", "streams", minimum=0)
    group_streams_max_assignment_interval_ms: int = _bound(15_000, "Longest assignment interval", "streams", minimum=0)
    group_streams_max_standby_replicas: int = _bound(2, "Most standby tasks", "streams", minimum=0)
    group_streams_max_warmup_replicas: int = _bound(20, "Most warm-up tasks", "streams", minimum=0, internal=True)
    group_streams_min_task_offset_interval_ms: int = _bound(
        15_000, "Shortest task offset interval", "streams", internal=True
    )


@dataclass(frozen=True, kw_only=True)
class SharePartitionConfig:
    """Broker settings of share groups at partition leaders. Groups may override all except share sessions' settings."""

    group_share_delivery_count_limit: int = setting(
        5, minimum=2, maximum=10, doc="How often a record is delivered to a share group at most."
    )
    group_share_max_share_sessions: int = _positive(2000, doc="Most share sessions of a broker.")
    group_share_partition_max_record_locks: int = setting(
        2000, minimum=100, maximum=10_000, doc="Most records of a share partition that may be in flight."
    )
    group_share_record_lock_duration_ms: int = setting(
        30_000, minimum=1000, maximum=3_600_000, doc="How long a member may hold a record."
    )


@dataclass(frozen=True, kw_only=True)
class DeadLetterConfig:
    """Broker settings of share groups' dead-letter queues."""

    errors_deadletterqueue_auto_create_topics_enable: bool = _dead_letter(
        False, doc="Whether a dead-letter queue that a share group names is created."
    )
    errors_deadletterqueue_topic_name_prefix: str = _dead_letter(
        "dlq.", doc="What the name of a dead-letter queue has to begin with."
    )


@dataclass(frozen=True, kw_only=True)
class TransactionConfig:
    """Broker settings of transactions and of the transaction topic."""

    transaction_max_timeout_ms: int = _positive(900_000, doc="Longest timeout a producer may ask for.")
    transactional_id_expiration_ms: int = _positive(
        604_800_000, doc="Time after which an idle transactional id is forgotten."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _positive(
        10_000, doc="Time between two looks for transactions to abort."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _positive(
        3_600_000, doc="Time between two looks for transactional ids to forget."
    )
    transaction_state_log_min_isr: int = _positive(2, doc="min.insync.replicas of the transaction topic.")
    transaction_state_log_num_partitions: int = _partitions("transaction")
    transaction_state_log_replication_factor: int = _replicas("transaction")
    transaction_state_log_segment_bytes: int = _segment_bytes("transaction")
    add_partitions_to_txn_retry_backoff_ms: int = _positive(
        20, doc="Pause before a partition is added to a transaction again, whose producer is ending one."
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        100, minimum=0, doc="Longest time in which adding a partition to a transaction is tried again."
    )


@dataclass(frozen=True, kw_only=True)
class ShareCoordinatorConfig:
    """Broker settings of the share coordinator and of the share state topic."""

    share_coordinator_state_topic_num_partitions: int = _partitions("share state")
    share_coordinator_state_topic_replication_factor: int = _replicas("share state")
    share_coordinator_state_topic_min_isr: int = _positive(
        2, kind=SHORT, doc="min.insync.replicas of the share state topic."
    )
    share_coordinator_state_topic_segment_bytes: int = _segment_bytes("share state")
    share_coordinator_state_topic_prune_interval_ms: int = _positive(
        300_000, doc="Time between two looks for redundant records of share state.", internal=True
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = _positive(
        300_000, doc="Age at which a snapshot of share state is written anew.", internal=True
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        500, minimum=0, maximum=500, doc="Updates of share state between two snapshots."
    )
    share_coordinator_write_timeout_ms: int = _positive(5000, doc="Longest wait for share state to be replicated.")
