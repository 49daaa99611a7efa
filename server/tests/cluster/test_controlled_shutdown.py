"""A broker that stops asks the controller for a controlled shutdown, again and again if need be."""

from types import SimpleNamespace
from typing import Any

from ottla.server.cluster.controlled_shutdown import ControlledShutdown
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.controller_requests import ControlledShutdownRequest, ControlledShutdownResponse


class Registered:
    """A member whose session expires when it has asked for the first time: it registers again, under the next epoch."""

    controller_id = 2

    def __init__(self) -> None:
        self.broker_epoch = 7
        self.epochs_asked_with: list[int] = []

    async def ask_controller(self, request: ControlledShutdownRequest, version: int, **_: Any) -> Any:
        self.epochs_asked_with.append(request.broker_epoch)
        if len(self.epochs_asked_with) == 1:
            self.broker_epoch += 1
        is_stale = request.broker_epoch != self.broker_epoch
        error = ErrorCode.STALE_BROKER_EPOCH if is_stale else ErrorCode.NONE
        return ControlledShutdownResponse(error_code=error, remaining_partitions=[])


async def test_a_broker_that_has_registered_again_asks_with_its_new_epoch(autojump_clock: Any) -> None:
    member_config = SimpleNamespace(
        controlled_shutdown_timeout_ms=60_000,
        controlled_shutdown_max_retries=3,
        controlled_shutdown_retry_backoff_ms=5_000,
    )
    broker: Any = SimpleNamespace(
        node_id=1,
        config=SimpleNamespace(member=member_config, server=SimpleNamespace(request_timeout_ms=30_000)),
        cluster=SimpleNamespace(brokers={1: None, 2: None}),
        replicas=SimpleNamespace(partitions=list),
    )
    member: Any = Registered()
    await ControlledShutdown(broker, member, lambda: member.broker_epoch).run()
    assert member.epochs_asked_with == [7, 8]
