"""Coordinators whose code cannot be loaded at once."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import pytest

from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC
from ottla.server.coordinators.coordinators import Coordinators
from ottla.server.tests.administered import opened


class Recorded:
    def __init__(self) -> None:
        self.led: list[int] = []

    def on_election(self, partition: int) -> None:
        self.led.append(partition)

    def on_resignation(self, partition: int) -> None:
        self.led.remove(partition)

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Nothing is kept here."""


def test_a_coordinator_that_could_not_be_loaded_leads_once_it_is_made() -> None:
    def fail() -> Recorded:
        raise ImportError("too many open files")

    coordinators = Coordinators({"state": fail})
    for partition in (0, 1, 2):
        coordinators.on_election("state", partition)
    coordinators.on_resignation("state", 1)
    made = Recorded()
    coordinators.take_up("state", made)
    assert made.led == [0, 2]
    coordinators.on_election("state", 3)
    coordinators.on_resignation("state", 0)
    assert made.led == [2, 3]


async def test_a_thread_loads_the_code_before_a_partition_is_led(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the event loop that would take longer than others should wait."""
    (tmp_path / "late_code_of_groups.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    broker = await opened(tmp_path / "data", {"offsets.topic.num.partitions": "2"})
    monkeypatch.setattr(broker.coordinators, "_code", {GROUP_METADATA_TOPIC: ["late_code_of_groups"]})
    events: list[str] = []
    load, lead = broker.coordinators.load_code, broker.coordinators.on_election

    def noted_load(modules: Sequence[str]) -> None:
        events.extend(modules)
        load(modules)

    def noted_election(topic: str, partition: int) -> None:
        events.append(topic)
        lead(topic, partition)

    monkeypatch.setattr(broker.coordinators, "load_code", noted_load)
    monkeypatch.setattr(broker.coordinators, "on_election", noted_election)
    await broker.ensure_internal_topic(GROUP_METADATA_TOPIC)
    assert events == ["late_code_of_groups", GROUP_METADATA_TOPIC, GROUP_METADATA_TOPIC]
    assert "late_code_of_groups" in sys.modules
    assert broker.begun_groups is not None
    await broker.stop()


async def test_a_broker_has_no_group_coordinator_before_somebody_asks(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    assert broker.begun_groups is None
    assert broker.groups is broker.begun_groups
    await broker.stop()


def test_code_that_cannot_be_loaded_ends_nothing() -> None:
    coordinators = Coordinators({}, {"state": ["no_such_module_anywhere"]})
    assert coordinators.not_loaded(["state", "topic"]) == ["no_such_module_anywhere"]
    coordinators.load_code(["no_such_module_anywhere"])
    assert coordinators.not_loaded(["state"]) == ["no_such_module_anywhere"]


def test_code_that_another_thread_is_loading_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever took it for loaded would wait for that thread, on the event loop."""
    begun, may_end = Event(), Event()
    monkeypatch.setitem(sys.modules, "events_of_slow_code", SimpleNamespace(begun=begun, may_end=may_end))
    content = "import events_of_slow_code as e\ne.begun.set()\ne.may_end.wait(60)\n"
    (tmp_path / "slow_code_of_state.py").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    coordinators = Coordinators({}, {"state": ["slow_code_of_state"]})
    thread = Thread(target=coordinators.load_code, args=(["slow_code_of_state"],))
    thread.start()
    try:
        assert begun.wait(60)
        assert coordinators.not_loaded(["state"]) == ["slow_code_of_state"]
    finally:
        may_end.set()
        thread.join()
    assert coordinators.not_loaded(["state"]) == []


LOADS = """
import sys, tempfile, trio
from pathlib import Path
from ottla.server.coordinators.groups_code import load_groups
from ottla.server.tests.administered import opened

async def run(folder):
    broker = await opened(Path(folder))
    load_groups()
    code = broker.coordinators._code
    broker.coordinators.load_code(broker.coordinators.not_loaded(code))
    before = set(sys.modules)
    broker.groups, broker.transactions, broker.share_coordinator
    print(sorted(set(sys.modules) - before))
    await broker.stop()

with tempfile.TemporaryDirectory() as folder:
    trio.run(run, folder)
"""


def test_coordinators_are_made_without_loading_anything() -> None:
    """The event loop makes them; whatever they need a thread has loaded."""
    found = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
