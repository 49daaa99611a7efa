"""A broker whose session has ended serves nothing that it led before it has registered anew, however good the new session is."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing

from ottla.server.cluster.member import ClusterMember
from ottla.server.cluster.session import ClusterSession, Session

OLD_EPOCH, NEW_EPOCH = 7, 8


class Member(ClusterMember):
    """As much of a member as registers. It has lost its session, and another one has begun."""

    def __init__(self) -> None:
        self._broker: Any = SimpleNamespace(node_id=1)
        self._tree = cast(Any, SimpleNamespace(is_shared=True))
        self.security = cast(Any, SimpleNamespace(listeners=dict))
        self._may_join, self._has_joined = trio.Event(), trio.Event()
        self._may_join.set()
        self.session = ClusterSession()
        self.broker_epoch = OLD_EPOCH
        self.was_fenced_when_it_began_anew = False
        self.controller_requests: Any = SimpleNamespace(
            confirmed_epoch=OLD_EPOCH, registered=trio.Event(), begin_anew=self._note_beginning
        )
        self.election: Any = SimpleNamespace(run=self._elect)
        self.notifications: Any = SimpleNamespace(run=trio.sleep_forever)
        self.features: Any = SimpleNamespace(run=trio.sleep_forever)
        self.may_register = trio.Event()

    def _note_beginning(self) -> None:
        self.was_fenced_when_it_began_anew = self.is_fenced

    async def _register(self, session: Session) -> int:
        await self.may_register.wait()
        return NEW_EPOCH

    async def _hear_of_settings(self) -> None:
        await trio.sleep_forever()

    async def _elect(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep_forever()


async def test_a_broker_is_fenced_until_it_has_registered_and_heard_of_it(nursery: trio.Nursery) -> None:
    member = Member()
    session = cast(Any, SimpleNamespace(session_id=2, session_sure_until=math.inf, session_now=trio.current_time))
    member.session.attach(session)
    nursery.start_soon(member._take_part, session)
    await trio.testing.wait_all_tasks_blocked()
    assert member.is_fenced
    member.may_register.set()
    await trio.testing.wait_all_tasks_blocked()
    assert member.was_fenced_when_it_began_anew
    assert member.is_fenced
    member.controller_requests.confirmed_epoch = NEW_EPOCH
    assert not member.is_fenced
    member.session.attach(None)
    assert member.is_fenced
