"""The code of coordinators: a broker that has none of them does without. That of groups is a tenth of all that a broker may load."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.groupcoord.group_types import LateKind

GROUPS_CODE: Final = (
    "ottla.groupcoord.service",
    "ottla.server.coordinators.coordinator_log",
    "ottla.server.coordinators.topic_images",
    "ottla.replication.log.ordinary_batches",
)


SHARE_STATE_CODE: Final = ("ottla.groupcoord.share.coordinator.service", "ottla.server.coordinators.coordinator_log")
TRANSACTIONS_CODE: Final = (
    "ottla.groupcoord.transactions.service",
    "ottla.server.coordinators.coordinator_log",
    "ottla.server.coordinators.producer_id_blocks",
    "ottla.server.coordinators.transaction_markers",
    "ottla.server.produce.markers",
)


def load_groups(kind: LateKind | None = None) -> None:
    """Load it, and what groups of a newer kind need. In a thread: that takes long.

    The `prepare` of each handler that asks `Broker.groups`, which loads nothing then.
    """
    for each in GROUPS_CODE:
        import_module(each)
    if kind is not None:
        kind.load()
