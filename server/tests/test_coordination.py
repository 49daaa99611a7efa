"""The embedded adapter keeps the port's promises; ZooKeeper's half is compat_tests/coordination/."""

import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from ottla.replication.coordination import Coordination, CoordinationUnavailable
from ottla.server.coordination.embedded import EmbeddedCoordination
from ottla.server.tests.coordination_promises import PROMISES


@pytest.fixture
def coordination(tmp_path: Path) -> Iterator[EmbeddedCoordination]:
    embedded = EmbeddedCoordination(tmp_path)
    embedded.open()
    yield embedded
    embedded.close()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
async def test_the_embedded_adapter_keeps(
    promise: Callable[[Coordination], Awaitable[None]], coordination: EmbeddedCoordination
) -> None:
    await promise(coordination)


async def test_a_closed_adapter_never_becomes_available(coordination: EmbeddedCoordination) -> None:
    coordination.close()
    with pytest.raises(CoordinationUnavailable):
        await coordination.until_available()


def test_a_broker_without_zookeeper_does_not_pay_for_kazoo() -> None:
    program = "import ottla.server.broker, sys; sys.exit('kazoo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
