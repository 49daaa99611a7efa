"""Damaged indexes are made anew beside the event loop; readers are told to come again until then."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.replication.log import segment as segment_module
from ottla.replication.log.names import INDEX_SUFFIX
from ottla.replication.log.tests.logs import NOW_MS, append, batch, load, new_log, offsets, read_batches
from ottla.replication.replica_manager.housekeeping import Repairer
from ottla.wire.errors import ErrorCode, KafkaError


async def test_a_reader_of_damaged_indexes_is_told_to_come_again(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    monkeypatch.setattr(segment_module, "REPAIR_AT_ONCE_BYTES", 1000)
    log = new_log()
    for _ in range(100):
        append(log, batch(NOW_MS, value=b"x" * 500))
    log.roll(NOW_MS)
    append(log, batch(NOW_MS))
    log.flush()
    log.close()
    log.log_directory.storage.write(log.segments[0].path(INDEX_SUFFIX), b"torn")
    log = load(log)
    calls = []

    async def run_in_thread(work: object) -> None:
        calls.append(work)
        await trio.lowlevel.checkpoint()
        assert callable(work)
        work()

    repairer = Repairer(run_in_thread)
    nursery.start_soon(repairer.run)
    log.enter_service(repairer.request)
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            log.read(50, 1000, upper_bound=log.log_end_offset)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_directory.is_online
    await wait_all_tasks_blocked()
    assert len(calls) == 1
    assert offsets(read_batches(log)) == list(range(101))
    assert len(calls) == 1
