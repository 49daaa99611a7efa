"""The coordination tree of several workers: that of a broker which is alone, held by their start and served to all of them.

It is the same journal in the same place, so that nothing moves when a broker that was alone gets company, or is left alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio

from ottla.replication.cluster import znodes
from ottla.server.start.own_tree import take_over
from ottla.server.start.served_tree import Port, ServedTree

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination
    from ottla.server.settings.coordination_config import CoordinationConfig

LOOK_AGAIN_S: Final = 0.02


class WorkersTree(ServedTree):
    """A `CoordinationTree`."""

    # It was there when the first worker was started. If it is away, its keeper waits for room: a worker that gave up would be
    # started again until its supervisor took it for hopeless. Whoever keeps the tree away for good ends all workers.
    start_patience_s = math.inf

    def __init__(self, broker: Port, config: CoordinationConfig, number: int) -> None:
        super().__init__(broker, config)
        self._number = number

    async def fill(self, tree: Coordination) -> None:
        """Take over what Apache Kafka left in the log directories, which are those of worker 0. The others wait for it."""
        if self._number == 0:
            await take_over(self._broker, tree)
            return
        # If worker 0 cannot, it ends the start of all.
        while (await tree.get_all([znodes.CLUSTER_ID]))[0] is None:
            await trio.sleep(LOOK_AGAIN_S)

    async def begin(self) -> None:
        """This tree has always been that of these directories."""
