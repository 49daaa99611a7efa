"""Creation of Kafka's internal topics when they are first needed."""

from ottla.replication.cluster.metadata_cache import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.settings.broker_config import BrokerConfig


def new_topic(name: str, config: BrokerConfig, *, replicas_max: int | None) -> NewTopic:
    """The topic to create when `name` is missing: the broker's defaults, or an internal topic's own rules.

    `replicas_max` bounds the replication factor of internal topics, because Kafka's default of three could never be
    met by a broker that coordinates in process and so is always alone. None leaves it as configured.
    """
    if name == GROUP_METADATA_TOPIC:
        groups = config.groups
        return NewTopic(
            name=name,
            partition_count=groups.offsets_topic_num_partitions,
            replication_factor=_bounded(groups.offsets_topic_replication_factor, replicas_max),
            # As Kafka sets them. Compaction keeps the last record of each key, and a load needs no more.
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(groups.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        transactions = config.transactions
        return NewTopic(
            name=name,
            partition_count=transactions.transaction_state_log_num_partitions,
            replication_factor=_bounded(transactions.transaction_state_log_replication_factor, replicas_max),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(_bounded(transactions.transaction_state_log_min_isr, replicas_max)),
                "segment.bytes": str(transactions.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE_TOPIC:
        share = config.share_coordinator
        return NewTopic(
            name=name,
            partition_count=share.share_coordinator_state_topic_num_partitions,
            replication_factor=_bounded(share.share_coordinator_state_topic_replication_factor, replicas_max),
            # Not compacted, as an update does not replace the one before it. The coordinator itself cuts off what is
            # redundant.
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(_bounded(share.share_coordinator_state_topic_min_isr, replicas_max)),
                "retention.ms": "-1",
                "segment.bytes": str(share.share_coordinator_state_topic_segment_bytes),
            },
        )
    return NewTopic(name=name)


def _bounded(value: int, replicas_max: int | None) -> int:
    return value if replicas_max is None else min(value, replicas_max)
