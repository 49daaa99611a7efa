"""A session that is probed: what happens while a connection is given up."""

import trio

from ottla.server.cluster.coordination.probed_session import ProbedSession


class Session(ProbedSession):
    """Its probes stay unanswered, and it may end while its connection is being given up."""

    def __init__(self, *, ends: bool) -> None:
        super().__init__(timeout_s=6)
        self.is_connected = True
        self.probes = 0
        self._ends = ends

    @property
    def _is_connected(self) -> bool:
        return self.is_connected

    def _send_probe(self, sent: float) -> None:
        self.probes += 1

    async def _give_up_connection(self) -> None:
        # As when a process was stopped for longer than its session: the end is heard of in this very turn.
        await trio.lowlevel.checkpoint()
        self.is_connected = False
        if self._ends:
            self._no_longer_sure()
        self._session_changed()

    def connect(self) -> None:
        self.is_connected, self._probe_open = True, False
        self._session_changed()


async def test_a_session_that_ends_while_its_connection_is_given_up_is_let_go(autojump_clock: trio.abc.Clock) -> None:
    with trio.fail_after(60):
        await Session(ends=True)._keep_sure()


async def test_a_connection_that_was_given_up_is_not_probed_until_there_is_another(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    session = Session(ends=False)
    nursery.start_soon(session._keep_sure)
    await trio.sleep(60)
    assert session.probes == 1
    session.connect()
    await trio.sleep(0.1)
    assert session.probes == 2
