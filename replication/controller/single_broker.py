"""Elections and reassignments where there is one broker: nobody else could lead, and there is nowhere to move to.

The checks and words are those of Apache Kafka's single node (its class ReplicationControlManager).
"""

from collections.abc import Sequence

from ottla.replication.cluster.metadata_cache import NO_LEADER, MetadataCache
from ottla.replication.controller.elect_leaders import ElectionType
from ottla.replication.controller.topic_planner import TopicPlanner
from ottla.wire.errors import ErrorCode, KafkaError


def election(cluster: MetadataCache, topic: str, index: int, election_type: ElectionType) -> KafkaError:
    """Why there is no election: the leader leads, or the only broker cannot."""
    known = cluster.topics.get(topic)
    if known is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    if not 0 <= index < len(known.partitions):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    if known.partitions[index].leader != NO_LEADER:
        code = ErrorCode.ELECTION_NOT_NEEDED
    elif election_type is ElectionType.PREFERRED:
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return KafkaError(code, code.message)


def check_reassignment(planner: TopicPlanner, topic: str, index: int, replicas: Sequence[int] | None) -> None:
    """Refuse a reassignment, unless it is to this broker, which has the partition already. None cancels one."""
    known = planner.cluster.topics.get(topic)
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if not 0 <= index < len(known.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}.")
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    planner.check_assignment(replicas)
