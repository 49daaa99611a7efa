"""Several Apache ZooKeepers that elect a leader, or a single one that leads itself."""

import contextlib
import signal
import socket
from pathlib import Path

from compat_tests.apache.brokers import ZooKeeper, jars, small_java
from compat_tests.support.brokers import free_port, suspend, wait_until
from compat_tests.support.network import Place

# Milliseconds of a tick and numbers of ticks: a leader that is dead or stopped is missed after two seconds. Sessions
# may be as short as 1 s.
TICKS = {"tickTime": "200", "initLimit": "50", "syncLimit": "10"}
TICKS |= {"minSessionTimeout": "1000", "maxSessionTimeout": "20000"}
SETTINGS = TICKS | {"4lw.commands.whitelist": "srvr", "maxClientCnxns": "0", "forceSync": "no"}


class Ensemble:
    """Every server's data outlives any number of stops."""

    def __init__(
        self, directory: Path, size: int = 1, settings: dict[str, str] | None = None, place: Place | None = None
    ) -> None:
        """`place` is where they are and clients come to; among themselves they talk on 127.0.0.1."""
        jars("kafka_3")
        directory.mkdir(exist_ok=True)
        quorum = {f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in range(size)}
        chosen = SETTINGS | (quorum if size > 1 else {}) | (settings or {})
        self.servers = [ZooKeeper(directory / str(number), small_java, chosen) for number in range(size)]
        for number, server in enumerate(self.servers):
            (server.directory / "data").mkdir()
            (server.directory / "data" / "myid").write_text(str(number))
            server.port = free_port()
            if place is not None:
                server.host, server.inside = place

    @property
    def address(self) -> str:
        """For zookeeper.connect."""
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        for server in self.servers:
            if server.process is None or server.process.poll() is not None:
                server.launch()
        wait_until(lambda: sorted(map(role, self.servers)) == self._roles(), "the ZooKeepers have a leader", 60)

    def _roles(self) -> list[str]:
        return ["standalone"] if len(self.servers) == 1 else ["follower"] * (len(self.servers) - 1) + ["leader"]

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def leader(self) -> ZooKeeper:
        """The one that leads, as soon as there is one."""
        return wait_until(
            lambda: next((each for each in self.servers if role(each) in ("leader", "standalone")), None),
            "the ZooKeepers have a leader",
            60,
        )

    def pause(self) -> None:
        for server in self.servers:
            suspend(server.process)

    def resume(self) -> None:
        for server in self.servers:
            server.process.send_signal(signal.SIGCONT)


def role(server: ZooKeeper) -> str:
    """What a server says that it is: leader, follower, standalone; nothing if it does not serve."""
    if server.process is None or server.process.poll() is not None:
        return ""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((server.host, server.port), timeout=1) as sock:
        sock.sendall(b"srvr")
        while chunk := sock.recv(4096):
            answer += chunk
    return answer.partition(b"Mode: ")[2].split(b"\n")[0].decode()
