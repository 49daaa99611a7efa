"""Who may read the files that a broker, several workers and `ottla cluster` make? The umask lets all of them."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from compat_tests.support.brokers import BrokerProcess, OttlaProcess
from compat_tests.support.workers import WorkersProcess
from confluent_kafka import Consumer, Producer

LOCKS = {".lock", "coordination.journal", "coordination.socket", "coordination.socket.lock"}
"""What nobody but the user may open, whoever may read the rest."""


def open_to_others(folder: Path, file: int = 0o600, directory: int = 0o700) -> list[str]:
    """Everything below a folder that has other modes than these."""
    found = []
    for path in (folder, *folder.rglob("*")):
        expected = directory if path.is_dir() else 0o600 if path.name in LOCKS else file
        if (mode := stat.S_IMODE(path.stat().st_mode)) != expected:
            found.append(f"{mode:o} {path.relative_to(folder)}")
    return found


def use(bootstrap: str) -> None:
    """Make a topic, records, a transaction and the offsets of a group."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "transactional.id": "t"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(10):
        producer.produce("orders", f"{number}".encode())
    producer.commit_transaction(60)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(10, 60)) == 10
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    started: list[BrokerProcess] = []

    def start(settings: dict[str, str], kind: type[BrokerProcess] = OttlaProcess) -> BrokerProcess:
        started.append(kind(tmp_path, {"log.segment.bytes": "1048576", **settings}))
        return started[-1].start()

    yield start
    for each in started:
        each.stop()


@pytest.mark.parametrize("kind", [OttlaProcess, WorkersProcess])
def test_files_are_their_users_only(kind: type[BrokerProcess], running: Callable[..., BrokerProcess]) -> None:
    broker = running({}, kind)
    use(broker.bootstrap)
    assert open_to_others(broker.data_dir) == []
    broker.stop()
    assert open_to_others(broker.data_dir) == []
    broker.restart()
    assert open_to_others(broker.data_dir) == []


@pytest.mark.parametrize("kind", [OttlaProcess, WorkersProcess])
@pytest.mark.parametrize(("who", "file", "directory"), [("group", 0o640, 0o750), ("all", 0o644, 0o755)])
def test_whoever_shares_them_says_so(
    who: str, file: int, directory: int, kind: type[BrokerProcess], running: Callable[..., BrokerProcess]
) -> None:
    broker = running({"log.dirs.readable.by": who}, kind)
    use(broker.bootstrap)
    broker.stop()
    assert open_to_others(broker.data_dir, file, directory) == []


def test_what_is_there_already_keeps_its_modes_but_for_the_lock(running: Callable[..., BrokerProcess]) -> None:
    broker = running({"log.dirs.readable.by": "all"})
    use(broker.bootstrap)
    broker.stop()
    (broker.data_dir / ".lock").chmod(0o644)  # as an earlier version, or Kafka, made it
    os.truncate(broker.log_path, 0)
    broker.settings["log.dirs.readable.by"] = "user"
    broker.restart()
    assert stat.S_IMODE(broker.data_dir.stat().st_mode) == 0o755
    assert stat.S_IMODE((broker.data_dir / ".lock").stat().st_mode) == 0o600
    assert stat.S_IMODE((broker.data_dir / "orders-0" / f"{0:020}.log").stat().st_mode) == 0o644
    assert "WARN" not in broker.log


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs another user")
def test_a_local_reader_cannot_hold_the_lock(running: Callable[..., BrokerProcess]) -> None:
    with TemporaryDirectory() as folder:  # unlike the test's own, one that others may enter
        Path(folder).chmod(0o755)
        broker = running({"log.dirs.readable.by": "all", "log.dirs": f"{folder}/data"})
        broker.stop()
        Path(folder, "data/.lock").chmod(0o644)
        broker.restart()
        other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat"]
        assert (
            subprocess.run([*other, f"{folder}/data/meta.properties"], capture_output=True, check=False).returncode == 0
        )
        assert subprocess.run([*other, f"{folder}/data/.lock"], capture_output=True, check=False).returncode == 1
        broker.stop()


def test_a_cluster_is_its_users_only(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "cluster", "--brokers", "2", "--data", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        use(next(line for line in process.stdout if line.startswith(b"listening on ")).decode().split()[-1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
    finally:
        process.kill()
        process.stdout.close()
    assert open_to_others(folder) == []
