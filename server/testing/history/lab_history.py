"""The history of a lab: what wrapped clients of a test saw, held against the logs of its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ottla.server.testing.errors import LabError
from ottla.server.testing.history.history import told
from ottla.server.testing.history.narration import FinalRead
from ottla.server.testing.history.wrapping import History
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.server.testing.history.rules import Proof

TOPIC_RESOURCE = 2
POLICY = "cleanup.policy"


class LabView(Protocol):
    """Part of `Kafka` that a history looks at."""

    def topics(self) -> dict[str, int]:
        """Return the numbers of partitions by topic."""

    def partition(self, topic: str, partition: int = 0) -> Any:
        """Return the state of a partition. Raises LabError."""

    def records(self, topic: str, partition: int | None = None, *, read_committed: bool = False) -> Sequence[Any]:
        """Return the records of a partition. Raises LabError."""

    def ask(self, request: Any) -> Any:
        """Return the response to a request."""


class LabHistory(History):
    """A history whose check reads the logs of the lab's brokers, too."""

    def __init__(self, lab: LabView) -> None:
        super().__init__()
        self._lab = lab

    def broken(self, final: Sequence[FinalRead] = (), *, all_producers: bool = False) -> list[Proof]:
        """Return the promises that were broken, each with the events that prove it.

        `final`: logs as they are in the end; none: the logs of the lab's brokers. `all_producers`: every record of these
        topics was sent by a wrapped producer.
        """
        return super().broken(final or list(self._final_reads()), all_producers=all_producers)

    def _final_reads(self) -> Iterator[FinalRead]:
        counts = self._lab.topics()
        for topic in sorted(self.topics() & counts.keys()):
            if "compact" in self._policy(topic):
                self.compacted(topic)
            for partition in range(counts[topic]):
                try:
                    state = self._lab.partition(topic, partition)
                    for committed_only in (False, True):
                        records = self._lab.records(topic, partition, read_committed=committed_only)
                        named = [(each.offset, told(each.value)) for each in records]
                        end = state.high_watermark
                        yield FinalRead(topic, partition, state.log_start_offset, end, named, committed_only)
                except LabError:  # it has no leader, so that nobody can look
                    continue

    def _policy(self, topic: str) -> str:
        asked = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[POLICY])
        (result,) = self._lab.ask(DescribeConfigsRequest(resources=[asked])).results
        return next((each.value or "" for each in result.configs if each.name == POLICY), "")
