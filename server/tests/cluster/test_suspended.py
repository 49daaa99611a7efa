"""A machine that was suspended: the session counts that time, although the event loop's clock stood still."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from ottla.replication.system import boot_time
from ottla.server.cluster.coordination import zookeeper
from ottla.server.cluster.coordination.zookeeper import ZooKeeperCoordination
from ottla.server.cluster.member import ClusterMember
from ottla.server.cluster.session import ClusterSession
from ottla.server.config.coordination_config import ZooKeeperConfig

TIMEOUT_S = 18


class Suspends:
    """The clock that goes on while the machine sleeps."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def __call__(self) -> float:
        return boot_time() + self.slept_s


@pytest.fixture
def suspends(monkeypatch: pytest.MonkeyPatch) -> Suspends:
    suspends = Suspends()
    monkeypatch.setattr(zookeeper, "boot_time", suspends)
    return suspends


def is_fenced(session: ClusterSession) -> bool:
    member = SimpleNamespace(session=session, controller_requests=SimpleNamespace(confirmed_epoch=7), broker_epoch=7)
    return bool(cast(Any, ClusterMember.is_fenced).fget(member))


async def test_a_broker_that_was_suspended_for_long_is_fenced_at_once(suspends: Suspends) -> None:
    config = ZooKeeperConfig(zookeeper_connect="127.0.0.1:1", zookeeper_session_timeout_ms=TIMEOUT_S * 1000)
    coordination = ZooKeeperCoordination(config)
    session = ClusterSession()
    session.attach(cast(Any, coordination))
    session.note_registered()
    assert is_fenced(session)
    coordination._note_contact(coordination.session_now())
    assert not is_fenced(session)
    suspends.slept_s = TIMEOUT_S / 2
    assert not is_fenced(session)
    suspends.slept_s = TIMEOUT_S
    assert trio.current_time() < coordination.session_sure_until
    assert is_fenced(session)
    coordination._note_contact(coordination.session_now())
    assert not is_fenced(session)


def test_a_session_without_an_end_is_sure_without_a_look_at_the_clock() -> None:
    session = ClusterSession()
    session.attach(cast(Any, SimpleNamespace(session_sure_until=math.inf)))
    assert not session.is_sure
    session.note_registered()
    assert session.is_sure
