"""Plans of topic requests: the topic as it is and as it will be, or why the request is refused.

Sans-IO. A `plan_*` method looks at the cluster and either raises `KafkaError` (with Kafka's code and words, in Kafka's
order of checks) or returns a `TopicPlan`. The controller carries it out. Between `begin` and `abandon` a planned name is
taken: it collides with others before the cluster shows its topic.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ottla.replication.cluster.metadata_cache import (
    CLUSTER_METADATA_TOPIC,
    NO_LEADER,
    MetadataCache,
    PartitionState,
    TopicState,
    is_internal_topic,
    topic_name_problem,
)
from ottla.wire.errors import ErrorCode, KafkaError


def place_replicas(
    racks: Mapping[int, str | None],
    *,
    partition_count: int,
    replication_factor: int,
    start: int = 0,
    down: Sequence[int] = (),
) -> list[tuple[int, ...]]:
    """Choose replicas for new partitions; `racks` holds the usable brokers and their racks, `start` the first position.

    Brokers are put in a row whose neighbours are in different racks as far as possible. Each partition takes the next
    `replication_factor` brokers, skipping racks that hold more of its replicas than another rack. Its first replica,
    the preferred leader, moves on by one from partition to partition. After each round over all brokers the followers
    are shifted by one more, so that the partitions of one leader do not share the same followers.

    `down` holds registered brokers that are not live. They get the replicas that no live broker can have, as in Kafka's
    StripedReplicaPlacer: a topic can be created while a broker is down.
    """
    if replication_factor <= 0:
        raise _refused(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
    if not racks:
        raise _refused("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(racks) + len(down):
        raise _refused(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(racks) + len(down)} broker(s) are registered or some brokers have all their log directories cordoned."
        )
    row, count = _alternating(racks), min(replication_factor, len(racks))
    lacking = tuple(down[: replication_factor - count])
    # After this many partitions both the first replica and the shift of the followers begin again. So ten thousand
    # partitions cost no more than one period.
    period = len(row) * (len(row) - 1) or 1  # then all begins again
    placed = [_replicas(row, racks, start + number, count) + lacking for number in range(min(partition_count, period))]
    return [placed[number % period] for number in range(partition_count)]


def _replicas(row: list[int], racks: Mapping[int, str | None], number: int, count: int) -> tuple[int, ...]:
    size = len(row)
    shift = number // size % (size - 1) if size > 1 else 0
    chosen = [row[number % size]]
    left = [row[(number + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    held = Counter([racks[chosen[0]]])
    while len(chosen) < count:
        # `min` takes the first of several that are equal, so without racks the order of the row decides.
        broker = min(left, key=lambda each: held[racks[each]])
        left.remove(broker)
        chosen.append(broker)
        held[racks[broker]] += 1
    return tuple(chosen)


def _alternating(racks: Mapping[int, str | None]) -> list[int]:
    """Order brokers by taking one from each rack in turn; without racks, by id."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker] or "", []).append(broker)
    rounds = max(map(len, by_rack.values()))
    return [members[turn] for turn in range(rounds) for _, members in sorted(by_rack.items()) if turn < len(members)]


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


PARTITIONS_PER_REQUEST_MAX = 10_000
RECORDS_PER_REQUEST_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class NewTopic:
    """A requested topic: counts of -1 mean the broker's defaults; assignments replace both counts."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class TopicPlan:
    """Planned change of a topic; `before` is None for a creation, `first_new` is the first new partition's number."""

    before: TopicState | None
    after: TopicState
    first_new: int = 0
    configs: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        return self.after.name


class TopicPlanner:
    def __init__(
        self,
        cluster: MetadataCache,
        *,
        partition_count: int = 1,
        replication_factor: int = 1,
        start: int = 0,
        is_cordoned: Callable[[int], bool] = lambda node_id: False,
    ) -> None:
        """Create a planner; `is_cordoned(broker)` is True if a broker gets replicas only when a request names it."""
        self._is_cordoned = is_cordoned
        self.cluster = cluster
        self.partition_count = partition_count
        self.replication_factor = replication_factor
        self._next_start = start  # in the row of brokers; see `place_replicas`
        self._planned: dict[str, TopicPlan] = {}  # by name, from `begin` on
        self._colliding: dict[str, set[str]] = {}  # names of topics by what metrics make of them
        for name in cluster.topics:
            self._note_name(name)
        cluster.on_topic_change(self._on_topic_change)

    # ------------------------------------------------------------------ creation

    def check_partition_total(self, topics: Iterable[NewTopic]) -> None:
        """Raise KafkaError if the request would create more partitions than one decision can hold."""
        total = 0
        for topic in topics:
            requested = self.partition_count if topic.partition_count == -1 else max(topic.partition_count, 0)
            total += len(topic.assignments) or requested
        if total > PARTITIONS_PER_REQUEST_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")

    def check_batch(self, plans: Iterable[TopicPlan]) -> None:
        """Raise KafkaError if creating the topics needs too many records: one per topic, setting and partition."""
        counts = (1 + len(plan.configs or ()) + len(plan.after.partitions) for plan in plans)
        if sum(counts) > RECORDS_PER_REQUEST_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")

    def check_name(self, name: str) -> None:
        """Raise KafkaError if a topic name is invalid, collides with another one in metrics, or is taken."""
        if name == CLUSTER_METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        if (problem := topic_name_problem(name)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name in self.cluster.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        for other in self._colliding.get(_unified(name), ()):
            # A topic of this very name is refused above if it exists, or by the shell if it is planned.
            if other != name:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    def plan_creation(self, topic: NewTopic, topic_id: bytes) -> TopicPlan:
        """Plan a new topic, whose name and settings the caller has checked."""
        replicas = self._assigned(topic) if topic.assignments else self._placed(topic)
        state = TopicState(
            name=topic.name,
            topic_id=topic_id,
            partitions=self._new_partitions(replicas),
            is_internal=is_internal_topic(topic.name),
        )
        return TopicPlan(before=None, after=state, configs=dict(topic.configs or {}))

    def check_extension_total(self, requested: Iterable[tuple[str, int]]) -> None:
        """Raise KafkaError if `requested`, (topic, new count) pairs, add too many partitions to existing topics."""
        total = 0
        for name, count in requested:
            if (topic := self.cluster.topics.get(name)) is not None:
                total += max(count - len(topic.partitions), 0)
        if total > PARTITIONS_PER_REQUEST_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "Excessively large number of additional partitions per request."
            )

    def plan_partitions(
        self, topic: TopicState | None, count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> TopicPlan:
        """Plan more partitions, `count` in total, for a topic. Raises KafkaError, also if `topic` is None (missing)."""
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        present = len(topic.partitions)
        _check_increase(topic.name, present, count)
        if assignments is not None and len(assignments) != count - present:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {count - present} additional partition(s), but only {len(assignments)} "
                "assignment(s) were specified.",
            )
        replicas = self._added_replicas(topic, count - present, assignments)
        state = replace(topic, partitions=topic.partitions + self._new_partitions(replicas))
        return TopicPlan(before=topic, after=state, first_new=present)

    def _added_replicas(
        self, topic: TopicState, additional: int, assignments: Sequence[Sequence[int]] | None
    ) -> Sequence[Sequence[int]]:
        # As in Kafka, partition 0 decides how many replicas the new partitions get.
        factor = len(topic.partitions[0].replicas)
        if assignments is None:
            return self._place(additional, factor)
        for offset, ids in enumerate(assignments):
            self.check_assignment(ids, factor)
            self._check_alive(ids, len(topic.partitions) + offset)
        return assignments

    def _assigned(self, topic: NewTopic) -> list[Sequence[int]]:
        """Return the replicas that a request assigns to partitions; raises KafkaError if they are invalid."""
        for value, text in ((topic.replication_factor, "replication factor"), (topic.partition_count, "numPartitions")):
            if value != -1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {text} was not set to -1.",
                )
        chosen: dict[int, Sequence[int]] = {}
        factor: int | None = None
        for partition, ids in topic.assignments:
            if partition in chosen:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {partition}",
                )
            self.check_assignment(ids, factor)
            self._check_alive(ids, partition)
            chosen[partition], factor = ids, len(ids)
        if any(partition not in chosen for partition in range(len(chosen))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
            )
        return [chosen[partition] for partition in range(len(chosen))]

    def _placed(self, topic: NewTopic) -> list[tuple[int, ...]]:
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.partition_count < -1 or topic.partition_count == 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        count = self.partition_count if topic.partition_count == -1 else topic.partition_count
        factor = self.replication_factor if topic.replication_factor == -1 else topic.replication_factor
        try:
            return self._place(count, factor)
        except KafkaError as error:
            message = f"Unable to replicate the partition {factor} time(s): {error.message}"
            raise KafkaError(error.code, message) from None

    def _place(self, count: int, factor: int) -> list[tuple[int, ...]]:
        racks = {
            node_id: broker.rack for node_id, broker in self.cluster.brokers.items() if not self._is_cordoned(node_id)
        }
        down = sorted(each for each in self.cluster.registered - racks.keys() if not self._is_cordoned(each))
        placed = place_replicas(
            racks, partition_count=count, replication_factor=factor, start=self._next_start, down=down
        )
        # The next topic goes on where this one ends. Otherwise one broker would lead all topics of one partition.
        self._next_start += count
        return placed

    def check_assignment(self, ids: Sequence[int], factor: int | None = None) -> None:
        """Check the replicas assigned to one partition. `factor` is their required number; None: any number."""
        problem = None
        ordered = sorted(ids)
        if not ordered:
            problem = "The manual partition assignment includes an empty replica list."
        for position, broker in enumerate(ordered):
            if broker not in self.cluster.brokers:
                problem = f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            elif position and ordered[position - 1] == broker:
                problem = f"The manual partition assignment includes the broker {broker} more than once."
            if problem is not None:
                break
        if problem is None and factor is not None and len(ordered) != factor:
            problem = (
                f"The manual partition assignment includes a partition with {len(ordered)} replica(s), but this is not "
                f"consistent with previous partitions, which have {factor} replica(s)."
            )
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)

    def _check_alive(self, ids: Sequence[int], partition: int) -> None:
        if not any(broker in self.cluster.brokers for broker in ids):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
                "controlled shutdown.",
            )

    def _new_partitions(self, replicas: Sequence[Sequence[int]]) -> tuple[PartitionState, ...]:
        """Plan new partitions with these replicas. Partitions with equal replicas share one state."""
        # To make one for each of ten thousand partitions would hold the event loop.
        states = {ids: self._new_partition(ids) for ids in {tuple(each) for each in replicas}}
        return tuple([states[tuple(ids)] for ids in replicas])

    def _new_partition(self, ids: tuple[int, ...]) -> PartitionState:
        isr = tuple([broker for broker in ids if broker in self.cluster.brokers])
        # If none of them is alive there is no leader. The first to come has every record: there are none.
        return PartitionState(leader=isr[0] if isr else NO_LEADER, leader_epoch=0, replicas=ids, isr=isr or ids)

    # ------------------------------------------------------------------ from plan to fact

    def begin(self, plan: TopicPlan) -> None:
        """Reserve the name of a planned topic until `abandon` is called."""
        assert plan.name not in self._planned
        self._planned[plan.name] = plan
        self._note_name(plan.name)

    def is_planned(self, name: str) -> bool:
        return name in self._planned

    def abandon(self, plan: TopicPlan) -> None:
        """Release the name of a planned topic after its creation or the creation's failure; may be called twice."""
        # A second call must not give up a later plan of the same name.
        if self._planned.get(plan.name) is plan:
            del self._planned[plan.name]
            self._on_topic_change(plan.name)

    # ------------------------------------------------------------------ names

    def _on_topic_change(self, name: str) -> None:
        # A planned name collides with others before the cluster shows its topic.
        if name in self.cluster.topics or name in self._planned:
            self._note_name(name)
        else:
            self._forget_name(name)

    def _note_name(self, name: str) -> None:
        # All other names collide only with themselves.
        if "." in name or "_" in name:
            self._colliding.setdefault(_unified(name), set()).add(name)

    def _forget_name(self, name: str) -> None:
        names = self._colliding.get(_unified(name))
        if names is not None:
            names.discard(name)
            if not names:
                del self._colliding[_unified(name)]


def _unified(name: str) -> str:
    """Return the form of a topic name in metrics, where `.` and `_` are the same."""
    return name.replace(".", "_")


def _check_increase(name: str, present: int, count: int) -> None:
    if count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {present} partition(s); {count} would not be an increase.",
        )
