"""Who says something about a transaction."""

from __future__ import annotations

from typing import NamedTuple


class Producer(NamedTuple):
    """A producer with a transactional id, as it names itself."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
