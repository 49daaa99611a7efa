"""Metrics that warn early: room on the disks, certificates that expire, transactions that nobody ends."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio import _threads

from ottla.replication.log.tests.logs import NOW_MS, batch
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.server.admin.console import history
from ottla.server.admin.http.metrics import upkeep
from ottla.server.admin.http.metrics.cluster import LATE_MS
from ottla.server.admin.http.metrics.upkeep import DiskRoom, certificates, disk_room
from ottla.server.tests.admin.test_http_health import config_for, get, running
from ottla.server.tests.admin.test_http_metrics import both, parsed, values
from ottla.server.tests.console_client import ask, make_topic
from ottla.server.tests.encrypted import listener


def directory(path: str, space: Any, *, is_online: bool = True) -> Any:
    return SimpleNamespace(path=path, is_online=is_online, storage=SimpleNamespace(space=space))


def meter_of(*directories: Any) -> DiskRoom:
    broker: Any = SimpleNamespace(replicas=SimpleNamespace(log_directories=list(directories)))
    return DiskRoom(broker)


def refused(path: str) -> tuple[int, int]:
    raise OSError("no such disk")


async def test_each_disk_has_its_room_and_disks_without_an_answer_are_left_out() -> None:
    room = meter_of(
        directory("/b", lambda path: (100, 40)),
        directory("/a", lambda path: (9, 0)),
        directory("/gone", refused),
        directory("/offline", lambda path: (5, 5), is_online=False),
    )
    await room.measure()
    found = both(lambda exposition: disk_room(room, exposition))
    assert values(found["ottla_log_directory_total_bytes"]) == {("/a",): 9, ("/b",): 100}
    assert values(found["ottla_log_directory_free_bytes"]) == {("/a",): 0, ("/b",): 40}


async def test_a_disk_that_fails_later_is_left_out_from_then_on() -> None:
    disk = directory("/a", lambda path: (9, 1))
    room = meter_of(disk)
    await room.measure()
    assert room.by_path == {"/a": (9, 1)}
    disk.is_online = False
    await room.measure()
    assert room.by_path == {}


async def test_a_disk_that_hangs_holds_up_no_other_and_takes_one_thread(mock_clock: trio.testing.MockClock) -> None:
    release, asked = threading.Event(), []

    def hang(path: str) -> tuple[int, int]:
        asked.append(path)
        release.wait(60)
        return 7, 7

    room = meter_of(directory("/hangs", hang), directory("/well", lambda path: (9, 1)))
    room.by_path["/hangs"] = upkeep.Room(7, 7)  # from before
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.measure)
        while not asked or "/well" not in room.by_path:
            await trio.testing.wait_all_tasks_blocked(0.001)
        mock_clock.jump(upkeep.PATIENCE_S)
    for _ in range(2):
        assert room.by_path == {"/well": (9, 1)}
        await room.measure()
    assert asked == ["/hangs"]
    release.set()
    while room._busy:
        await trio.testing.wait_all_tasks_blocked(0.001)
    await room.measure()
    assert room.by_path == {"/well": (9, 1), "/hangs": (7, 7)}


async def test_a_thread_that_cannot_be_started_leaves_the_room_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the endpoint would end, of which the meter is a part."""
    room = meter_of(directory("/a", lambda path: (9, 1)), directory("/b", lambda path: (9, 2)))
    await room.measure()

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_threads, "start_thread_soon", refuse)
        await room.measure()
        assert room.by_path == {}
    await room.measure()
    assert room.by_path == {"/a": (9, 1), "/b": (9, 2)}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.EIO])
async def test_a_directory_whose_room_cannot_be_read_is_left_out_of_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The broker goes on, and so does its hour of history."""
    monkeypatch.setattr(upkeep, "EARLY_S", 0.01)
    monkeypatch.setattr(history, "STEP_S", 0.05)
    failures = []

    def fail(path: str) -> os.statvfs_result:
        failures.append(path)
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "statvfs", fail)
    async with running(config_for(tmp_path)) as broker:
        with trio.fail_after(60):
            while not failures or (await ask(broker, "/api/history")).json["directories"] == []:
                await trio.sleep(0.01)
        told = (await ask(broker, "/api/history")).json
    [found] = told["directories"]
    assert found["totalBytes"] is None and not any(found["free"])
    assert any(each is not None for each in told["figures"]["recordsIn"])


async def test_a_measurement_that_is_cancelled_before_its_thread_begins_is_repeated() -> None:
    room = meter_of(directory("/a", lambda path: (9, 1)))
    with trio.CancelScope() as scope:
        scope.cancel()
        await room.measure()
    assert room.by_path == {}
    await room.measure()
    assert room.by_path == {"/a": (9, 1)}


def test_each_listener_with_a_certificate_has_its_expiry() -> None:
    tls = listener()
    broker: Any = SimpleNamespace(tls=[tls])
    found = both(lambda exposition: certificates(broker, exposition))
    assert values(found["ottla_certificate_expiry_timestamp_seconds"]) == {("SSL",): tls.expires_s}
    open_broker: Any = SimpleNamespace(tls=None)
    found = both(lambda exposition: certificates(open_broker, exposition))
    assert values(found["ottla_certificate_expiry_timestamp_seconds"]) == {}


async def test_a_broker_has_metrics_of_its_disk_and_of_late_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "EARLY_S", 0.01)
    async with running(config_for(tmp_path)) as broker:
        await make_topic(broker, "orders", 2)
        partition = broker.partition("orders", 1)
        # No coordinator knows the transaction of this record.
        records = batch(NOW_MS, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        checked = partition.log.check_thoroughly(records, now_ms=NOW_MS)
        partition.append_as_leader(records, required_acks=1, now_ms=NOW_MS, checked=checked, guard=NOT_REQUIRED)
        oldest = partition.log.oldest_transaction
        assert oldest is not None
        late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
        longest_ms = broker.configs.started_with.transactions.transaction_max_timeout_ms + LATE_MS
        for age_ms, count in ((longest_ms - 60_000, 0), (longest_ms + 60_000, 1)):
            oldest.last_timestamp = broker.now_ms() - age_ms
            found = parsed((await get(broker, "/metrics"))[1], is_open_metrics=False)
            assert values(found[late]) == {(): count}
        partition.make_follower(leader_id=9, leader_epoch=99, partition_epoch=99, replicas=(1, 9))
        found = parsed((await get(broker, "/metrics"))[1], is_open_metrics=False)
        assert values(found[late]) == {(): 0}
        (path,) = (each.path for each in broker.replicas.log_directories)
        sizes = [each.log.size_in_bytes for each in broker.replicas.partitions()]
        assert values(found["ottla_log_directory_size_bytes"]) == {(path,): sum(sizes)}
        # The endpoint is there before the log directories are.
        while not (total := values(found["ottla_log_directory_total_bytes"])):
            found = parsed((await get(broker, "/metrics"))[1], is_open_metrics=False)
        assert total[(path,)] > values(found["ottla_log_directory_free_bytes"])[(path,)] > 0
