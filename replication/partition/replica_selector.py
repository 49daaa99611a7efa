"""Which replica a consumer had better read from (KIP-392). Sans-IO."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.replication.partition.followers import Holder


def in_same_rack(rack: str, leader: int, holders: Iterable[Holder], rack_of: Callable[[int], str | None]) -> int | None:
    """The follower in the consumer's rack that is furthest; None: the leader, which is best if it is there itself."""
    if not rack or rack_of(leader) == rack:
        return None
    near = [each for each in holders if rack_of(each.broker) == rack]
    if not near:
        return None
    return max(near, key=lambda each: (each.log_end_offset, each.caught_up_ms, each.broker)).broker
