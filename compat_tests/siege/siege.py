"""A broker under siege: its process, the watch on it, the bystander, and what one attack did to them."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from compat_tests.siege import watched_broker
from compat_tests.siege.attacks import Attack
from compat_tests.siege.bystander import TOPIC as BYSTANDERS_TOPIC
from compat_tests.siege.subjects import TOPIC
from compat_tests.siege.watched_broker import LASTING, Notes, Turn
from compat_tests.support import raw
from compat_tests.support.brokers import OttlaProcess, wait_until

SETTINGS = {
    "connections.max.idle.ms": "10000",
    "num.partitions": "1",
    "group.min.session.timeout.ms": "6000",
    "log.segment.delete.delay.ms": "1000",
}
MIB = 1 << 20
ROOT = Path(__file__).resolve().parent.parent.parent
LEAVE_WITHIN_S = 60.0  # what a large crowd has sent is worked off first
TOPICS_MAX = 1000
"""So many topics may attacks leave. Each topic needs memory, which would count as the next attack's."""
DELETED_AT_ONCE = 500
BYSTANDER_NICE = -10  # it measures the broker, not how long it waits for a processor itself


class Limits(NamedTuple):
    """What an attack may do at most: milliseconds, MiB, descriptors."""

    hold_ms: float = 50.0
    memory_mib: float = 300.0
    sockets_left: int = 0


class Damage(NamedTuple):
    """What one attack did. Milliseconds and MiB; `slowest_ms` is the bystander's longest wait."""

    attack: str
    longest: Turn
    """The turn of the loop that was held longest."""
    busy_ms: float
    away_ms: float
    """For how long the machine kept the loop from a turn at most."""
    memory_mib: float
    sockets_left: int
    slowest_ms: float
    seconds: float
    stack: str = ""
    """Where the loop was in the last turn that lasted long, if there was one."""

    @property
    def hold_ms(self) -> float:
        return self.longest.held_ns / 1e6

    def breaks(self, limits: Limits) -> list[str]:
        """The limits that are broken, in words."""
        broken = []
        if self.hold_ms > limits.hold_ms:
            longest = self.longest
            parts = f"{longest.busy_ns / 1e6:.0f} ms at work, {longest.blocked_ns / 1e6:.0f} ms asleep in the kernel"
            broken.append(f"the loop was held for {self.hold_ms:.0f} ms: {parts}, {longest.faults} pages from the disk")
        if self.memory_mib > limits.memory_mib:
            broken.append(f"memory grew by {self.memory_mib:.0f} MiB")
        if self.sockets_left > limits.sockets_left:
            broken.append(f"{self.sockets_left} sockets were left")
        return broken


class WatchedOttla(OttlaProcess):
    """Ottla with a watch on its event loop."""

    @property
    def notes_path(self) -> Path:
        return self.directory / "notes"

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, watched_broker.__file__, str(self.notes_path), *arguments]


class Siege:
    """See the module's docstring; made by `laid`."""

    def __init__(self, broker: WatchedOttla, notes: Notes, bystander: subprocess.Popen[bytes], waits: Path) -> None:
        self.broker = broker
        self._notes = notes
        self._bystander = bystander
        self._waits = waits
        self._waits_read = 0
        self.all_waits_ms: list[float] = []
        self._idle_bytes = broker.resident_bytes
        self._idle_sockets = self._sockets()

    @property
    def address(self) -> tuple[str, int]:
        return self.broker.host, self.broker.port

    def carry_out(self, attack: Attack) -> Damage:
        """Run one attack and tell its damage. AssertionError: the broker or the bystander did not survive it."""
        ensure_topic(self.address, TOPIC)
        self._notes.clear()
        logged = len(self.broker.log)
        self._reset_peak()
        self._new_waits_ms()
        began = time.monotonic()
        attack.run(self.address)
        seconds = time.monotonic() - began
        left = self._sockets_left()
        seen = self._notes.read()
        assert not self.broker.died(), f"the broker ended after {attack}:\n{self.broker.log[-4000:]}"
        assert self._bystander.poll() is None, f"the bystander ended after {attack}"
        waits = self._new_waits_ms()
        self.all_waits_ms += waits
        grown = (self._peak_bytes() - self._idle_bytes) / MIB
        self._delete_topics()
        slowest_ms, stack = max(waits, default=0.0), self.broker.log[logged:].rpartition(LASTING)
        return Damage(
            str(attack),
            seen.longest,
            seen.busy_ns / 1e6,
            seen.away_ns / 1e6,
            grown,
            left,
            slowest_ms,
            seconds,
            stack[1] + stack[2],
        )

    def garbage(self) -> int:
        """How many objects were held by nothing but each other since this was asked last; they are gone now."""
        self._notes.garbage = -1
        self.broker.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: self._notes.garbage >= 0, "the broker has counted its garbage")
        return self._notes.garbage

    def _delete_topics(self) -> None:
        """Delete the topics that attacks have left, if they are more than `TOPICS_MAX`."""
        folders = [name for name in os.listdir(self.broker.data_dir) if name.rpartition("-")[2].isdigit()]
        if len(folders) <= TOPICS_MAX:
            return
        kept = (TOPIC, BYSTANDERS_TOPIC, "__consumer_offsets")
        names = [name for name in dict.fromkeys(each.rpartition("-")[0] for each in folders) if name not in kept]
        with raw.Peer(self.address, timeout_s=120) as peer:
            for start in range(0, len(names), DELETED_AT_ONCE):
                peer.call("DeleteTopics", 3, topic_names=names[start : start + DELETED_AT_ONCE], timeout_ms=60_000)

    def _sockets_left(self) -> int:
        """Sockets that the attack's peers have left in the broker a while after they went."""
        deadline = time.monotonic() + LEAVE_WITHIN_S
        while (left := self._sockets() - self._idle_sockets) > 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        return max(left, 0)

    def _sockets(self) -> int:
        """Number of the broker's network sockets; those of the pair to its background worker stay once they are made."""
        process = f"/proc/{self.broker.process.pid}"
        pairs = {f"socket:[{line.split()[6]}]" for line in Path(f"{process}/net/unix").read_text().splitlines()[1:]}
        count = 0
        for name in os.listdir(f"{process}/fd"):
            with contextlib.suppress(FileNotFoundError):
                link = os.readlink(f"{process}/fd/{name}")
                count += link.startswith("socket:") and link not in pairs
        return count

    def _reset_peak(self) -> None:
        Path(f"/proc/{self.broker.process.pid}/clear_refs").write_text("5")

    def _peak_bytes(self) -> int:
        status = Path(f"/proc/{self.broker.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024

    def _new_waits_ms(self) -> list[float]:
        with self._waits.open() as lines:
            lines.seek(self._waits_read)
            text = lines.read()
        whole, _, _ = text.rpartition("\n")
        self._waits_read += len(whole) + bool(whole)
        return [float(wait) for line in whole.splitlines() for wait in line.split()[1:]]


@contextlib.contextmanager
def laid(directory: Path, settings: dict[str, str] | None = None) -> Iterator[Siege]:
    """A broker with its bystander, ready to be attacked."""
    broker = WatchedOttla(directory, SETTINGS | (settings or {}))
    notes = Notes(broker.notes_path, create=True)
    waits = directory / "waits"
    broker.start()
    try:
        for topic in (TOPIC, BYSTANDERS_TOPIC):
            ensure_topic((broker.host, broker.port), topic)
        command = [sys.executable, "-m", "compat_tests.siege.bystander", broker.bootstrap, str(waits)]
        bystander = subprocess.Popen(command, cwd=ROOT)
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, bystander.pid, BYSTANDER_NICE)
        try:
            wait_until(lambda: waits.exists() and waits.stat().st_size > 2000, "the bystander is served")
            yield Siege(broker, notes, bystander, waits)
        finally:
            bystander.terminate()
            bystander.wait()
        broker.stop()
    finally:
        if not broker.died():
            broker.kill()


def ensure_topic(address: tuple[str, int], topic: str) -> None:
    """Have the broker make a topic, unless it is there."""
    with raw.Peer(address, timeout_s=60) as peer:
        wait_until(lambda: _is_there(peer, topic), f"topic {topic} is there")


def _is_there(peer: raw.Peer, topic: str) -> bool:
    topics = [raw.message_class("MetadataRequest").MetadataRequestTopic(version=4, name=topic)]
    (answer,) = peer.call("Metadata", 4, topics=topics, allow_auto_topic_creation=True).topics
    return answer.error_code == 0
