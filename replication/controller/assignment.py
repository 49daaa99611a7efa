"""Which brokers hold the replicas of new partitions.

Brokers are put in a row in which neighbours come from different racks as far as possible. Each partition takes the next
`replication_factor` brokers of the row, passing over those in whose rack it has more replicas than in another, and its first
replica, the preferred leader, moves on by one from partition to partition. After a whole round the followers are shifted by
one more, so that the partitions of one leader do not all share the same followers.
"""

from collections import Counter
from collections.abc import Mapping

from ottla.wire.errors import ErrorCode, KafkaError


def place_replicas(
    racks: Mapping[int, str | None], *, partition_count: int, replication_factor: int, start: int = 0
) -> list[tuple[int, ...]]:
    """Replicas of each new partition. `racks` holds the usable brokers, `start` where in the row to begin."""
    if replication_factor <= 0:
        raise _refused(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
    if not racks:
        raise _refused("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(racks):
        raise _refused(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(racks)} "
            "broker(s) are registered or some brokers have all their log directories cordoned."
        )
    row = _alternating(racks)
    # After this many partitions both the first replica and the shift of the followers begin again. So ten thousand
    # partitions cost no more than one period.
    period = len(row) * (len(row) - 1) or 1  # then all begins again
    placed = [
        _replicas(row, racks, start + number, replication_factor) for number in range(min(partition_count, period))
    ]
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
    """Brokers with one of each rack in turn; without racks, by id."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker] or "", []).append(broker)
    rounds = max(map(len, by_rack.values()))
    return [members[turn] for turn in range(rounds) for _, members in sorted(by_rack.items()) if turn < len(members)]


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
