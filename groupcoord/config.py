"""The settings of the group and transaction coordinators, by Kafka's names."""

from dataclasses import dataclass

from ottla.wire.settings import INT_MAX, LONG, SHORT, setting


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupConfig:
    """Classic groups and the topic that keeps committed offsets."""

    group_min_session_timeout_ms: int = setting(6000, doc="Shortest session timeout a member may ask for.")
    group_max_session_timeout_ms: int = setting(1_800_000, doc="Longest session timeout a member may ask for.")
    group_initial_rebalance_delay_ms: int = setting(
        3000, doc="How long the first rebalance of an empty group waits for more members."
    )
    group_max_size: int = setting(INT_MAX, minimum=1, doc="Most members of one group.")
    offset_metadata_max_bytes: int = setting(4096, doc="Largest metadata text of a committed offset.")
    offsets_commit_timeout_ms: int = setting(5000, minimum=1, doc="Longest wait for a commit to be replicated.")
    offsets_retention_minutes: int = setting(
        10_080, minimum=1, doc="Minutes after which the offsets of an empty group expire."
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, kind=LONG, minimum=1, doc="Time between two looks for expired offsets."
    )
    offsets_topic_num_partitions: int = setting(50, minimum=1, doc="Partitions of the offsets topic.")
    offsets_topic_replication_factor: int = setting(
        3, kind=SHORT, minimum=1, doc="Replicas of the offsets topic; a broker that coordinates in process makes one."
    )
    offsets_topic_segment_bytes: int = setting(104_857_600, minimum=1, doc="Segment size of the offsets topic.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionConfig:
    """Transactions and the topic that keeps their state."""

    transaction_max_timeout_ms: int = setting(
        900_000, minimum=1, doc="Longest timeout a producer may ask for.", effective=False
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000, minimum=1, doc="Time after which an idle transactional id is forgotten.", effective=False
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        10_000, minimum=1, doc="Time between two looks for transactions to abort.", effective=False
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        3_600_000, minimum=1, doc="Time between two looks for transactional ids to forget.", effective=False
    )
    transaction_state_log_min_isr: int = setting(2, minimum=1, doc="min.insync.replicas of the transaction topic.")
    transaction_state_log_num_partitions: int = setting(50, minimum=1, doc="Partitions of the transaction topic.")
    transaction_state_log_replication_factor: int = setting(
        3,
        kind=SHORT,
        minimum=1,
        doc="Replicas of the transaction topic; a broker that coordinates in process makes one.",
    )
    transaction_state_log_segment_bytes: int = setting(
        104_857_600, minimum=1, doc="Segment size of the transaction topic."
    )
