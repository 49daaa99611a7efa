"""The history of a lab: what clients of a test saw, held against the logs of its brokers.

Wrapped clients are known by what they gave to the test, all others by their requests and answers on the wire.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ottla.server.testing.errors import LabError
from ottla.server.testing.history.from_wire import exchanges_of, tell
from ottla.server.testing.history.history import told
from ottla.server.testing.history.narration import FinalRead
from ottla.server.testing.history.wrapping import History
from ottla.server.testing.records import partition_counts, read
from ottla.server.testing.transactions import list_transactions
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.server.testing.history.rules import Proof
    from ottla.server.testing.world.lab import Lab
    from ottla.server.testing.world.world import World

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
POLICY, OFFSETS_RETENTION = "cleanup.policy", "offsets.retention.minutes"


class LabHistory(History):
    """A history whose check reads the logs of the lab's brokers, too."""

    def __init__(self, lab: Lab, since: Any = None) -> None:
        """`since`: the last request on the wire that belongs to what was before; None: there is none."""
        super().__init__()
        self._lab, self._since = lab, since

    def broken(self, final: Sequence[FinalRead] = (), *, all_producers: bool = False) -> list[Proof]:
        """Return the promises that were broken, each with the events that prove it.

        `final`: contents of the logs at the end; empty: those of the brokers. `all_producers`: True if every record of
        these topics was sent by a wrapped producer.
        """
        # Before the logs, so that these have what clients write meanwhile.
        count, wire, world = len(self), History(), self._lab.world
        tell(wire, exchanges_of(world.wire.requests(since=self._since)), self._offsets_retention_s(world))
        logs = final or list(self._final_reads(self.topics() | wire.topics()))
        wire.compacted(*self._compacted)
        # Wrapped clients tell the time by another clock, so that nobody knows which of their records are of the topic before.
        self.deleted.update(dict.fromkeys(wire.deleted, math.inf))
        kept = [each for each in logs if each.topic not in self.deleted]
        found = self._judge(count, kept, all_producers=all_producers)
        known = {each.violation[:3] for each in found}
        return found + [each for each in wire.broken(logs) if each.violation[:3] not in known]

    def _final_reads(self, topics: set[str]) -> Iterator[FinalRead]:
        world = self._lab.world
        counts = self._lab.loop.call_sync(partition_counts, world)
        for topic in sorted(topics & counts.keys()):
            if "compact" in self._config(world, TOPIC_RESOURCE, topic, POLICY):
                self.compacted(topic)
            for partition in range(counts[topic]):
                try:
                    yield from self._lab.call(_final_reads_of, world, topic, partition)
                except LabError:  # it has no leader, so that nobody can look
                    continue

    def _offsets_retention_s(self, world: World) -> float:
        return 60 * float(self._config(world, BROKER_RESOURCE, str(world.any_node().node_id), OFFSETS_RETENTION))

    def _config(self, world: World, kind: int, name: str, key: str) -> str:
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
        request, node = DescribeConfigsRequest(resources=[asked]), world.any_node()
        (result,) = self._lab.call(world.ask, request, node).results
        return next((each.value or "" for each in result.configs if each.name == key), "")


async def _final_reads_of(world: World, topic: str, partition: int) -> list[FinalRead]:
    """Read a partition twice, for both kinds of readers, with nothing written in between. Raises LabError."""
    leading = world.leader(topic, partition).serving().partition(topic, partition)
    start, end, stable = leading.leading_log().log_start_offset, leading.high_watermark, leading.last_stable_offset
    named = [
        [(each.offset, told(each.value)) for each in read(leading, topic, partition, committed_only)]
        for committed_only in (False, True)
    ]
    is_open = stable < end and (
        any((topic, partition) in each.partitions for each in (await list_transactions(world)).values())
        or leading.last_stable_offset != stable
    )
    return [
        FinalRead(topic, partition, start, end, named[0]),
        FinalRead(topic, partition, start, stable, named[1], committed_only=True, is_open=is_open),
    ]
