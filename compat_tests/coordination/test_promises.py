"""ZooKeeper's adapter keeps the same promises as the embedded one (server/tests/cluster/test_coordination.py)."""

from collections.abc import Awaitable, Callable

import pytest

from ottla.replication.cluster.coordination import Coordination
from ottla.server.tests.coordination_promises import PROMISES


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
async def test_zookeeper_keeps(promise: Callable[[Coordination], Awaitable[None]], coordination: Coordination) -> None:
    await promise(coordination)
