"""`ottla cluster` as a user has it: one command, three brokers, and nothing left behind."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from compat_tests.support.brokers import exists, serve_until, wait_until
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic


class Command:
    """`ottla cluster` in a folder, and what it has said."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._log = folder.with_suffix(".log")
        self._begin = self._log.stat().st_size if self._log.exists() else 0
        self.process = self._started([sys.executable, "-m", "ottla", "cluster", "--data", str(folder), *options])

    def _started(self, command: list[str]) -> subprocess.Popen:
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def said(self) -> str:
        return self._log.read_text()[self._begin :]

    def bootstrap(self) -> str:
        def address() -> str | None:
            found = re.search(r"^listening on (\S+)\n", self.said, re.MULTILINE)
            assert found or self.process.poll() is None, f"the cluster does not serve:\n{self.said}"
            return found[1] if found else None

        return wait_until(address, "the cluster serves", 180)

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def brokers(self) -> list[int]:
        return [child for child in self.children() if b"ottla\0start" in Path(f"/proc/{child}/cmdline").read_bytes()]


class InTerminal(Command):
    """The same, in a terminal of its own."""

    def _started(self, command: list[str]) -> subprocess.Popen:
        self.terminal, end = os.openpty()
        os.set_blocking(self.terminal, False)
        self._text = b""
        started = subprocess.Popen(
            command,
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(end)
        return started

    @property
    def said(self) -> str:
        with suppress(OSError):  # nothing more now, or nobody is there
            while chunk := os.read(self.terminal, 65536):
                self._text += chunk
        return self._text.decode().replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def shows_keys(self) -> bool:
        return bool(termios.tcgetattr(self.terminal)[3] & termios.ECHO)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    commands: list[Command] = []

    def start(*options: str) -> Command:
        commands.append(Command(tmp_path / "cluster", *options))
        return commands[-1]

    yield start
    for command in commands:
        command.process.kill()
        command.process.wait()


def test_one_command_is_a_cluster_that_comes_back_as_it_was(cluster, tmp_path):
    command = cluster()
    bootstrap = command.bootstrap()
    assert len(bootstrap.split(",")) == 3
    assert len(command.brokers()) == len(command.children())  # nothing but Python
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("kept", 1)])["kept"].result(60)

    def all_is_known():
        found = admin.list_topics("kept", timeout=60)
        return found if found.topics["kept"].partitions and len(found.brokers) == 3 else None

    found = wait_until(all_is_known, "the topic and all brokers are known")
    assert sorted(found.topics["kept"].partitions[0].replicas) == [1, 2, 3]
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("kept", b"value")
    assert producer.flush(60) == 0

    command.process.send_signal(signal.SIGINT)
    assert command.process.wait(90) == 0, command.said
    assert "ended" not in command.said
    for number in (1, 2, 3):
        _, stopping, last = (
            (tmp_path / "cluster" / f"broker-{number}.log").read_text().partition("stopping with all brokers")
        )
        assert stopping and "WARN" not in last and "ERROR" not in last

    again = cluster()
    assert again.bootstrap() == bootstrap
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["kept"])
    assert wait_until(lambda: consumer.poll(1), "the record is there").value() == b"value"
    consumer.close()


def asked(command: Command, *options: str) -> str:
    """What another `ottla cluster` says of the one that runs."""
    folder = command.process.args[command.process.args.index("--data") + 1]
    asking = [sys.executable, "-m", "ottla", "cluster", *options, "--data", folder]
    return subprocess.run(asking, check=True, capture_output=True, text=True, timeout=180).stdout


def test_what_ends_is_told_and_started_again_and_nothing_outlives_the_command(cluster):
    command = cluster()
    admin = AdminClient({"bootstrap.servers": command.bootstrap()})
    admin.create_topics([NewTopic("t", 1)])["t"].result(60)
    first, *others = command.brokers()
    assert len(others) == 2
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: "has ended (signal 9" in command.said, "the end of a broker is told")
    assert all(exists(pid) for pid in others)
    assert len(command.brokers()) == 2
    # Behind the name of the log file comes the command; the last line of the log, part of the banner, is not quoted.
    assert "broker-1.log); `ottla cluster start-broker 1 --data " in command.said
    wait_until(lambda: "under-replicated" in asked(command, "--status"), "the others go on without it")
    assert asked(command, "start-broker", "1") == "broker 1 serves again\n"
    assert len(command.brokers()) == 3
    wait_until(lambda: "under-replicated" not in asked(command, "status"), "it is in sync again")
    assert re.search(r"^t +0 +[123] .* [123],[123],[123]$", asked(command, "status"), re.MULTILINE)
    children = command.children()
    command.process.kill()
    wait_until(lambda: not any(exists(pid) for pid in children), "all are gone with the command")


def test_keys_in_the_terminal_kill_a_broker_and_start_it_again(tmp_path):
    command = InTerminal(tmp_path / "cluster", "--brokers", "2")
    try:
        assert command.shows_keys()
        command.bootstrap()
        assert "  keys            1 to 9 kill that broker, or start it again\n" in command.said
        wait_until(lambda: not command.shows_keys(), "the command has the keys")
        command.type("x0932")
        wait_until(lambda: "ottla: broker 2 has ended (signal 9" in command.said, "the second broker is killed")
        assert len(command.brokers()) == 1
        command.type("2")
        wait_until(lambda: "ottla: broker 2 serves again\n" in command.said, "it is started again", 60)
        assert len(command.brokers()) == 2
        command.type("\x03")
        wait_until(lambda: command.said and command.process.poll() is not None, "the command has ended", 60)
        assert command.process.returncode == 0 and "broker 1 has" not in command.said and "x0932" not in command.said
        assert command.shows_keys()
    finally:
        command.process.kill()
        command.process.wait()
        os.close(command.terminal)


def test_a_cluster_stops_with_the_logs_flushed_though_zookeeper_is_gone(cluster, tmp_path):
    command = cluster("--zookeeper")
    admin = AdminClient({"bootstrap.servers": command.bootstrap()})
    admin.create_topics([NewTopic("kept", 6)])["kept"].result(60)
    (zookeeper,) = set(command.children()) - set(command.brokers())
    os.kill(zookeeper, signal.SIGKILL)
    wait_until(lambda: "ZooKeeper has ended" in command.said, "the end of ZooKeeper is told")
    logs = [tmp_path / "cluster" / f"broker-{number}.log" for number in (1, 2, 3)]
    command.process.send_signal(signal.SIGTERM)
    assert command.process.wait(60) == 0, command.said
    for log in logs:
        assert "stopping with all brokers of the cluster" in log.read_text()
        assert (log.with_suffix("") / ".kafka_cleanshutdown").exists()


def test_a_broker_that_cannot_start_is_the_end_of_all(cluster, tmp_path):
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "broker-2").touch()
    command = cluster("--brokers", "2")
    assert command.process.wait(60) == 1
    assert "ottla: broker 2 has ended (exit status 1" in command.said


def test_a_secured_cluster_lets_in_who_has_the_files_of_the_client(cluster, tmp_path):
    tls = tmp_path / "tls"
    command = cluster("--secure", str(tls))
    bootstrap = command.bootstrap()
    # As it is printed.
    told = dict(re.findall(r"-X ([\w.]+)=(\S+)", command.said))
    assert f"ssl.keystore.location={tls}/client.pem" in command.said
    config = {"bootstrap.servers": bootstrap, **told}
    admin = AdminClient(config)
    admin.create_topics([NewTopic("secured", 3, 3)])["secured"].result(60)
    producer = Producer(config | {"acks": "all"})
    for number in range(30):
        producer.produce("secured", b"%d" % number)
    assert producer.flush(60) == 0
    failures = []
    without = {
        name: text for name, text in told.items() if name not in ("ssl.certificate.location", "ssl.key.location")
    }
    refused = Producer({"bootstrap.servers": bootstrap, **without, "error_cb": failures.append})
    serve_until(refused, lambda: failures, "who shows no certificate is refused")

    command.process.send_signal(signal.SIGINT)
    assert command.process.wait(90) == 0, command.said
    again = cluster()  # without the option, and secured all the same
    assert again.bootstrap() == bootstrap
    consumer = Consumer(config | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["secured"])
    found = set()

    def all_read():
        found.update(each.value() for each in consumer.consume(30, 0.5) if each.error() is None)
        return len(found) == 30

    wait_until(all_read, "every record is there", 60)
    consumer.close()
