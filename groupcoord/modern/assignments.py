"""Partitions by topic id: what members shall have, and what they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id. Never changed; a topic without partitions is not in it."""

EpochsOfPartitions = Mapping[bytes, Mapping[int, int]]
"""The same, with the member epoch since which each partition is assigned."""

NOTHING: Assignment = {}


def read_assignment(topics: Iterable[Any]) -> Assignment:
    """The partitions of structs with `topic_id` and `partitions`, as records and requests have them."""
    return {each.topic_id: frozenset(each.partitions) for each in topics if each.partitions}


def without_epochs(epochs: EpochsOfPartitions) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in epochs.items()}


def with_epoch(assignment: Assignment, epoch: int) -> EpochsOfPartitions:
    return {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in assignment.items()}


def count_of(assignment: Mapping[bytes, Any]) -> int:
    """How many partitions these are."""
    return sum(map(len, assignment.values()))


def is_part_of(topics: Iterable[Any], assignment: Mapping[bytes, Any]) -> bool:
    """Whether all partitions of these structs are in an assignment."""
    for each in topics:
        partitions = assignment.get(each.topic_id)
        if partitions is None or not all(partition in partitions for partition in each.partitions):
            return False
    return True
