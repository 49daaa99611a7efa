"""Blocks of producer ids, kept in the coordination tree so that no id is ever given out twice."""

from __future__ import annotations

import logging

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import BadVersion, Coordination, CoordinationError, SetData
from ottla.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("ottla.producer_ids")

BLOCK_SIZE = 1000


class ProducerIdBlocks:
    """Hands out the next block by moving /latest_producer_id_block, as Kafka's controller does."""

    def __init__(self, coordination: Coordination, node_id: int) -> None:
        self._coordination = coordination
        self._node_id = node_id

    async def allocate_block(self) -> range:
        """Reserve a block of ids that nobody else has; durable before it is returned.

        Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, which producers retry, while the tree cannot be reached.
        """
        try:
            return await self._allocate()
        except CoordinationError as error:
            logger.error("No block of producer ids can be reserved: %r", error)
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None

    async def _allocate(self) -> range:
        while True:
            node = await self._coordination.get(znodes.PRODUCER_ID_BLOCK)
            first = znodes.decode_producer_id_block(node.data)[1] + 1 if node.data else 0
            block = range(first, first + BLOCK_SIZE)
            data = znodes.encode_producer_id_block(self._node_id, block[0], block[-1])
            try:
                # The version lets only one of several brokers succeed that have read the same block.
                await self._coordination.multi([SetData(znodes.PRODUCER_ID_BLOCK, data, node.version)])
            except BadVersion:
                continue  # another broker was faster
            return block
