"""Batches that came together, appended by the leader of a partition in one write: see `replication/log/several_batches.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.replication.log.several_batches import append_several

if TYPE_CHECKING:
    from ottla.replication.log.validator import CheckedRecords
    from ottla.replication.partition.partition import Partition


def append_together(
    partition: Partition, checked: Sequence[CheckedRecords], *, required_acks: int, now_ms: int
) -> int | None:
    """Append ordinary batches, each following the one before, to a partition without followers. Returns the first offset.

    None: nothing was done, and they have to be appended one by one.
    """
    if not partition.is_leader or (required_acks == -1 and partition.is_under_min_isr):
        return None
    log = partition.log
    first = append_several(log, checked, leader_epoch=partition.leader_epoch, now_ms=now_ms)
    if first is None:
        return None
    traffic = partition.traffic  # of all partitions of the topic together
    traffic.produce_requests += len(checked)
    traffic.messages_in += log.log_end_offset - first
    traffic.bytes_in += sum([len(each.buffer) for each in checked])
    partition.reconsider()  # there are no followers, who would want the records even if the high watermark stood still
    return first
