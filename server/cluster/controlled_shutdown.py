"""Controlled shutdown: a stopping broker has the controller move its leaderships to other brokers, within a time limit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from ottla.replication.cluster.metadata_cache import NO_CONTROLLER
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.controller_requests import ControlledShutdownRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.server.cluster.ports import Member
    from ottla.server.ports import BrokerParts
    from ottla.wire.messages.controller_requests import ControlledShutdownResponse

logger = logging.getLogger("ottla.cluster")

ASK_AGAIN_S = 0.1
NAMES_IN_LOG_MAX = 10
VERSION = 3


class ControlledShutdown:
    """Controlled shutdown of this broker: it hands leaderships over. `broker_epoch` returns the broker's epoch."""

    def __init__(self, broker: BrokerParts, member: Member, broker_epoch: Callable[[], int]) -> None:
        self._broker, self._member, self._broker_epoch = broker, member, broker_epoch

    async def run(self) -> None:
        """Move leadership to other brokers within controlled.shutdown.timeout.ms; log partitions that are still led."""
        is_done = False
        try:
            with trio.move_on_after(self._broker.config.member.controlled_shutdown_timeout_ms / 1000):
                is_done = await self._hand_over_all()
        finally:  # also when the operator does not want to wait any longer
            self._log_what_is_left(is_done=is_done)

    async def _hand_over_all(self) -> bool:
        config, asked = self._broker.config.member, NO_CONTROLLER
        for attempt in range(1 + config.controlled_shutdown_max_retries):
            if attempt:
                await self._until_worth_asking(asked, config.controlled_shutdown_retry_backoff_ms / 1000)
            asked = self._member.controller_id
            left = await self._hand_over()
            if left == 0:
                return True
            if left is not None and len(self._broker.cluster.brokers) == 1:
                break  # there is nobody who could take it
        return False

    async def _until_worth_asking(self, asked: int, backoff_s: float) -> None:
        """Wait until a broker other than `asked` is the controller, at most `backoff_s` seconds."""
        with trio.move_on_after(backoff_s):
            # Where all brokers of a cluster stop together, so does the controller.
            while self._member.controller_id in (asked, NO_CONTROLLER):
                await trio.sleep(ASK_AGAIN_S)

    def _log_what_is_left(self, *, is_done: bool) -> None:
        """Log the partitions that this broker still leads. `is_done`: the controller reported that there are none."""
        node_id = self._broker.node_id
        if is_done:
            logger.info("Everything that broker %d led is handed over", node_id)
            return
        led = [partition for partition in self._broker.replicas.partitions() if partition.is_leader]
        names = [f"{partition.topic}-{partition.index}" for partition in led[:NAMES_IN_LOG_MAX]]
        logger.warning(
            "Broker %d stops although it still leads %d partitions%s%s",
            node_id,
            len(led),
            f": {', '.join(names)}" if names else "",
            " and others" if len(led) > len(names) else "",
        )

    async def _hand_over(self) -> int | None:
        """Send one ControlledShutdown request; return the number of partitions still led, None after a failure."""
        # A session that expired since the last request has led to another registration.
        request = ControlledShutdownRequest(broker_id=self._broker.node_id, broker_epoch=self._broker_epoch())
        try:
            response: ControlledShutdownResponse = await self._member.ask_controller(
                request, VERSION, timeout_s=self._broker.config.server.request_timeout_ms / 1000
            )
        except PeerUnavailable as problem:
            logger.warning("The controller cannot be asked for a controlled shutdown: %s", problem)
            return None
        if response.error_code:
            logger.warning("The controller refuses a controlled shutdown: %s", ErrorCode.of(response.error_code).name)
            return None
        return len(response.remaining_partitions)
