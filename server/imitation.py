"""Restrictions that let a broker pass for another release of Kafka, or for a hosted service, towards its clients.

A test's broker gets them with its `Environment`. The tables of calls are made from them at the start, so that no request
pays for them. What a policy refuses is POLICY_VIOLATION, as of a Kafka broker with a CreateTopicPolicy or AlterConfigPolicy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.schema import VersionRange
from ottla.wire.settings import parse_integer

if TYPE_CHECKING:
    from ottla.replication.controller.topic_planner import NewTopic

DEFAULT_COUNT = -1
"""Number of partitions or replicas in a request that leaves it to the broker."""
LONG_BITS = 64


@dataclass(frozen=True, kw_only=True)
class TopicPolicy:
    """Rules for the topics that clients may create and change."""

    editable: frozenset[str] | None = None
    """Topic settings that a client may give; None: all."""
    editable_at_creation: frozenset[str] = frozenset()
    """Topic settings that a client may give only while it creates the topic."""
    limits: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """Least and greatest value of settings that are numbers, by name; None: no limit."""
    replication_factor: int | None = None
    """Only replication factor that a client may ask for. The topic gets the broker's default; None: any."""
    partitions_of_topic_max: int | None = None
    """Most partitions of one topic; None: no limit."""
    partitions_max: int | None = None
    """Most partitions of all topics together, without internal ones; None: no limit."""
    partitions_error: ErrorCode = ErrorCode.POLICY_VIOLATION
    """Error of a request for more than `partitions_max`."""
    topics_max: int | None = None
    """Most topics, without internal ones; None: no limit."""
    grows: bool = True
    """Whether partitions may be added to a topic."""

    def check_creation(self, topic: NewTopic, sizes: Mapping[str, int], default_count: int) -> tuple[NewTopic, int]:
        """Return the topic to create and its number of partitions. Raises KafkaError with POLICY_VIOLATION.

        `sizes`: numbers of partitions of the topics that clients have made, by name. `default_count`: the broker's.
        """
        factor = topic.replication_factor
        if self.replication_factor is not None and factor != DEFAULT_COUNT:
            if factor != self.replication_factor:
                raise refusal(f"Replication factor must be {self.replication_factor}.")
            topic = replace(topic, replication_factor=DEFAULT_COUNT)
        if self.topics_max is not None and len(sizes) >= self.topics_max:
            raise refusal(f"There can be no more than {self.topics_max} topics.")
        asked = default_count if topic.partition_count == DEFAULT_COUNT else topic.partition_count
        count = len(topic.assignments) or asked
        self._check_count(count, 0, sizes)
        self._check_names(topic.configs or (), self.editable_at_creation)
        self._check_values(topic.configs or {})
        return topic, count

    def check_growth(self, topic: str, count: int, sizes: Mapping[str, int]) -> None:
        """Raise KafkaError with POLICY_VIOLATION if a topic must not get `count` partitions in total."""
        if topic not in sizes:
            return
        if not self.grows:
            raise refusal("The number of partitions of a topic cannot be changed.")
        self._check_count(count, sizes[topic], sizes)

    def check_change(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Raise KafkaError with POLICY_VIOLATION if a topic's own settings must not change so."""
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        self._check_names(changed, ())
        self._check_values({name: after[name] for name in changed if name in after})

    def _check_count(self, count: int, before: int, sizes: Mapping[str, int]) -> None:
        if self.partitions_of_topic_max is not None and count > self.partitions_of_topic_max:
            raise refusal(f"A topic can have no more than {self.partitions_of_topic_max} partitions.")
        if self.partitions_max is not None and sum(sizes.values()) - before + count > self.partitions_max:
            raise KafkaError(self.partitions_error, f"There can be no more than {self.partitions_max} partitions.")

    def _check_names(self, names: Iterable[str], more: Collection[str]) -> None:
        if self.editable is None:
            return
        fixed = sorted(name for name in names if name not in self.editable and name not in more)
        if fixed:
            raise refusal(f"These topic settings cannot be changed: {', '.join(fixed)}")

    def _check_values(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            number = parse_integer(text, LONG_BITS)
            least, greatest = self.limits.get(name, (None, None))
            # What is no number is refused with the other invalid values.
            if number is not None and least is not None and number < least:
                raise refusal(f"{name} must be at least {least}.")
            if number is not None and greatest is not None and number > greatest:
                raise refusal(f"{name} must be at most {greatest}.")


def refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.POLICY_VIOLATION, message)


@dataclass(frozen=True, kw_only=True)
class Restrictions:
    """Differences between this broker and one that is Ottla as it is."""

    versions: Mapping[int, VersionRange] | None = None
    """Versions by API key that clients are told, and served if this broker has them. None: all that this broker has."""
    tells_features: bool = True
    """Whether ApiVersions answers list features with their levels."""
    topics: TopicPolicy | None = None
    """Rules for topics; None: Kafka's own alone."""

    def served(self, api_key: int, own: VersionRange) -> VersionRange | None:
        """Return those versions of `own` that clients may use; None: none of them."""
        if self.versions is None:
            return own
        told = self.versions.get(api_key)
        if told is None:
            return None
        first, last = max(own.first, told.first), min(own.last, told.last)
        return VersionRange(first, last) if first <= last else None


NO_RESTRICTIONS = Restrictions()
