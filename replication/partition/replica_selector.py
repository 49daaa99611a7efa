"""Choice of the replica that a consumer reads from: one in its own rack (KIP-392, Kafka's RackAwareReplicaSelector). Sans-IO.

`server/api/fetch/partition_reader.py` asks for each partition of a consumer that names its rack. `Followers` says who holds the offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replication.partition.followers import Holder


def in_same_rack(rack: str, leader: int, holders: Iterable[Holder], rack_of: Callable[[int], str | None]) -> int | None:
    """Return the in-sync follower with the highest offset in the consumer's rack (KIP-392).

    Returns None if the consumer should fetch from the leader.
    """
    if not rack or rack_of(leader) == rack:
        return None
    near = [each for each in holders if rack_of(each.broker) == rack]
    if not near:
        return None
    return max(near, key=lambda each: (each.log_end_offset, each.caught_up_ms, each.broker)).broker
