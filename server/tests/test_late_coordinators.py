"""Coordinators whose code cannot be loaded at once."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread

import pytest

from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC
from ottla.server.admin import console
from ottla.server.api import handlers
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


async def test_a_partition_that_a_broker_gets_while_it_ends_is_no_bug(tmp_path: Path) -> None:
    broker = await opened(tmp_path / "data")
    await broker.stop()
    broker.coordinators.on_election(GROUP_METADATA_TOPIC, 0)
    assert broker.begun_groups is not None


async def test_a_thread_loads_the_code_before_a_partition_is_led(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the event loop that would take longer than others should wait."""
    broker = await opened(tmp_path / "data", {"offsets.topic.num.partitions": "2"})
    events: list[str] = []
    load, lead = broker.coordinators._load, broker.coordinators.on_election

    def noted_load() -> None:
        events.append("code")
        load()

    def noted_election(topic: str, partition: int) -> None:
        events.append(topic)
        lead(topic, partition)

    monkeypatch.setattr(broker.coordinators, "_load", noted_load)
    monkeypatch.setattr(broker.coordinators, "on_election", noted_election)
    await broker.ensure_internal_topic(GROUP_METADATA_TOPIC)
    assert events == ["code", GROUP_METADATA_TOPIC, GROUP_METADATA_TOPIC]
    assert broker.begun_groups is not None
    await broker.stop()


async def test_a_broker_has_no_group_coordinator_before_somebody_asks(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    assert broker.begun_groups is None
    assert broker.groups is broker.begun_groups
    await broker.stop()


def test_code_that_cannot_be_loaded_ends_nothing() -> None:
    loads = [ImportError("the file is damaged"), None]

    def load() -> None:
        if problem := loads.pop(0):
            raise problem

    coordinators = Coordinators({"state": Recorded}, load)
    assert coordinators.lack_code(["state", "topic"]) and not coordinators.lack_code(["topic"])
    coordinators.load_code()
    assert coordinators.lack_code(["state"])
    coordinators.load_code()
    assert not coordinators.lack_code(["state"])


def test_code_that_another_thread_is_loading_is_not_loaded() -> None:
    """Whoever took it for loaded would wait for that thread, on the event loop."""
    begun, may_end = Event(), Event()

    def load() -> None:
        begun.set()
        may_end.wait(60)

    coordinators = Coordinators({"state": Recorded}, load)
    thread = Thread(target=coordinators.load_code)
    thread.start()
    try:
        assert begun.wait(60)
        assert coordinators.lack_code(["state"])
    finally:
        may_end.set()
        thread.join()
    assert not coordinators.lack_code(["state"])


LOADS = """
import sys, tempfile, trio
from pathlib import Path
from ottla.server.tests.administered import opened

async def run(folder):
    broker = await opened(Path(folder))
    broker.coordinators.load_code()
    broker.producer_ids
    before = set(sys.modules)
    broker.groups, broker.transactions, broker.share_coordinator
    broker.groups.consumer, broker.groups.share, broker.groups.streams, broker.groups.transactional_offsets
    print(sorted(set(sys.modules) - before))
    await broker.stop()

with tempfile.TemporaryDirectory() as folder:
    trio.run(run, folder)
"""


def test_coordinators_are_made_without_loading_anything() -> None:
    """The event loop makes them; whatever they need a thread has loaded."""
    found = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_whoever_asks_for_a_coordinator_has_had_its_code_imported() -> None:
    """The functions of `coordinator_factory` are in the module that imports it; the broker alone would import it on the event loop."""
    asked = re.compile(r"broker\.(groups|transactions|share_coordinator|share_groups)\b")
    folders = (Path(handlers.__file__).parent, Path(console.__file__).parent)
    found = {
        each.name for folder in folders for each in folder.glob("*.py") if asked.search(each.read_text()) is not None
    }
    assert found == {"producer_ids.py"}  # most who ask it have no transactions; for the others a thread imports


LOADS_ON_THE_LOOP = """
import sys, tempfile, traceback, trio
from pathlib import Path
from ottla.groupcoord.runtime.answers import finished
from ottla.server.tests.administered import opened
from ottla.server.tests.api.test_topic_handlers import creatable, create
from ottla.server.dispatch.dispatch import all_routes
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record
from ottla.wire.record_encoding import encode_batch

loaded_by = []

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "ottla.server.coordinator_factory":
            # This broker runs at once what others give to a thread.
            loaded_by.append("load_code" in [each.name for each in traceback.extract_stack()])

async def run(folder, what):
    broker = await opened(Path(folder))
    await create(broker, creatable("t", 1))
    routes = all_routes()
    data = bytearray(encode_batch([Record(0, 0, None, b"x")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=memoryview(data))])
    asked = {
        22: (InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000), 4),
        0: (ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=100, topic_data=[topic]), 11),
    }[what]
    route = routes[what]
    route.code
    assert not loaded_by, loaded_by
    with trio.fail_after(60):
        await finished(route.handler(asked[0], broker.context(asked[1])))
    print(loaded_by)
    await broker.stop()

sys.meta_path.insert(0, Finder())
with tempfile.TemporaryDirectory() as folder:
    trio.run(run, folder, int(sys.argv[1]))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("api_key", [0, 22])
def test_a_thread_loads_the_code_for_the_first_transaction(api_key: int) -> None:
    command = [sys.executable, "-c", LOADS_ON_THE_LOOP, str(api_key)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("[True]\n", "")
