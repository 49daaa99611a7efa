"""The history of a lab: what clients of a test saw, held against the logs of its brokers.

Wrapped clients are known by what they gave to the test, all others by their requests and answers on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ottla.server.testing.errors import LabError
from ottla.server.testing.history.from_wire import exchanges_of, tell
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

    @property
    def wire(self) -> Any:
        """Tap of all connections."""

    def ask(self, request: Any) -> Any:
        """Return the response to a request."""


class LabHistory(History):
    """A history whose check reads the logs of the lab's brokers, too."""

    def __init__(self, lab: LabView, since: Any = None) -> None:
        """`since`: the last request on the wire that belongs to what was before; None: there is none."""
        super().__init__()
        self._lab, self._since = lab, since

    def broken(self, final: Sequence[FinalRead] = (), *, all_producers: bool = False) -> list[Proof]:
        """Return the promises that were broken, each with the events that prove it.

        `final`: contents of the logs at the end; empty: those of the brokers. `all_producers`: True if every record of
        these topics was sent by a wrapped producer.
        """
        wire = History()
        tell(wire, exchanges_of(self._lab.wire.requests(since=self._since)))
        logs = final or list(self._final_reads(self.topics() | wire.topics()))
        wire.compacted(*self._compacted)
        found = super().broken(logs, all_producers=all_producers)
        known = {each.violation[:3] for each in found}
        return found + [each for each in wire.broken(logs) if each.violation[:3] not in known]

    def _final_reads(self, topics: set[str]) -> Iterator[FinalRead]:
        counts = self._lab.topics()
        for topic in sorted(topics & counts.keys()):
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
