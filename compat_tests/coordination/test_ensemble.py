"""Three ZooKeepers that elect a leader, and what a session makes of losing it."""

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import pytest
import trio
from compat_tests.apache.brokers import ZooKeeper, free_port, jars, small_java
from compat_tests.support.brokers import suspend, wait_until
from kazoo.client import KazooClient

from ottla.replication.cluster.coordination import CoordinationUnavailable, Create
from ottla.server.tests.coordination_promises import Calls

SIZE = 3


def role(server: ZooKeeper) -> str:
    """What a server says that it is: leader, follower, or nothing while there is none."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
        sock.sendall(b"srvr")
        while chunk := sock.recv(4096):
            answer += chunk
    return answer.partition(b"Mode: ")[2].split(b"\n")[0].decode()


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ZooKeeper]]:
    """The leader first. The last test may stop it."""
    jars("kafka_3")
    folder = tmp_path_factory.mktemp("ensemble")
    # A follower that hears nothing of its leader goes on alone for 20 s: syncLimit ticks.
    settings = {"initLimit": "40", "syncLimit": "40", "4lw.commands.whitelist": "srvr"}
    settings |= {f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in range(SIZE)}
    servers = [ZooKeeper(folder / str(number), small_java, settings) for number in range(SIZE)]
    for number, server in enumerate(servers):
        (server.directory / "data").mkdir()
        (server.directory / "data" / "myid").write_text(str(number))
        server.start()
    wait_until(lambda: sorted(map(role, servers)) == ["follower", "follower", "leader"], "there is a leader")
    yield sorted(servers, key=role, reverse=True)
    for server in servers:
        server.stop()


async def test_a_follower_without_its_leader_does_not_make_a_session_sure(
    ensemble: list[ZooKeeper], root: str, open_session: Callable
) -> None:
    leader, follower, _ = ensemble
    coordination = await open_session(follower.address + root, 2_000)
    calls = Calls()
    coordination.watch_session(lambda: calls(""))
    plain = KazooClient(follower.address)
    await trio.to_thread.run_sync(plain.start)
    suspend(leader.process)
    try:
        with trio.fail_after(60):
            while trio.current_time() < coordination.session_sure_until:
                await calls.more_than(len(calls.paths))
        assert await trio.to_thread.run_sync(plain.exists, root)  # the follower still answers who asks no more
    finally:
        leader.process.send_signal(signal.SIGCONT)
        await trio.to_thread.run_sync(plain.stop)
        plain.close()


async def test_a_session_goes_on_with_the_next_leader(
    ensemble: list[ZooKeeper], root: str, open_session: Callable
) -> None:
    coordination = await open_session(",".join(server.address for server in ensemble) + root)
    await coordination.multi([Create("/e", ephemeral=True)])
    calls, session_id = Calls(), coordination.session_id
    coordination.watch_children("/", calls)
    ensemble[0].stop()
    with trio.fail_after(60):
        while not calls.paths:
            with contextlib.suppress(CoordinationUnavailable):
                await coordination.until_available()
                await coordination.multi([Create("/s_", sequential=True)])
                await calls.more_than(0)
    assert (await coordination.get("/e")).owner == session_id == coordination.session_id
