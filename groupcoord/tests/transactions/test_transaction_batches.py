"""Records of many transactional ids in one append: what is too large together is appended in parts."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock as Clock

from ottla.groupcoord.tests.transactions.test_transaction_service import Coordination
from ottla.wire.errors import ErrorCode

LARGEST = 4_000
LONG = [f"{number}{'x' * 1_500}" for number in range(6)]
"""Two of these fit into a batch, and not three."""


@pytest.fixture
async def talk(nursery: trio.Nursery, autojump_clock: Clock) -> Coordination:
    coordination = Coordination()
    coordination.log.batch_bytes_max = LARGEST
    await coordination.start(nursery)
    return coordination


async def pass_time(talk: Coordination, ms: int, looks_ms: int) -> None:
    talk.timestamp_ms += ms
    await trio.sleep(looks_ms / 1000 + 1)


async def states(talk: Coordination, *names: str) -> list[str]:
    return [each.transaction_state for each in await talk.describe(*names)]


async def test_overdue_transactions_with_long_names_are_aborted(talk: Coordination, autojump_clock: Clock) -> None:
    names = [*LONG, "short"]
    for name in names:
        await talk.add(await talk.init(name, timeout_ms=1_000), {"topic": [0]}, name=name)
    await pass_time(talk, 2_000, talk.config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
    assert await states(talk, *names) == ["PrepareAbort"] * 7
    assert sorted(owed.transactional_id for _, owed in talk.markers.owed) == sorted(names)


async def test_one_that_is_too_large_alone_keeps_nobody_else(talk: Coordination, autojump_clock: Clock) -> None:
    names = [*LONG, "short"]
    for name in names:
        await talk.add(await talk.init(name, timeout_ms=1_000), {"topic": [0]}, name=name)
    talk.log.batch_bytes_max = 1_000
    await pass_time(talk, 2_000, talk.config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
    assert await states(talk, "short", LONG[0]) == ["PrepareAbort", "Ongoing"]
    talk.log.batch_bytes_max = LARGEST
    await pass_time(talk, 0, talk.config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
    assert await states(talk, *names) == ["PrepareAbort"] * 7


async def test_ids_with_long_names_expire(talk: Coordination, autojump_clock: Clock) -> None:
    for name in LONG:
        await talk.init(name)
    config = talk.config
    await pass_time(
        talk, config.transactional_id_expiration_ms, config.transaction_remove_expired_transaction_cleanup_interval_ms
    )
    described = await talk.describe(*LONG)
    assert {each.error_code for each in described} == {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}


async def test_producers_that_come_at_once_share_appends_as_far_as_they_fit(
    talk: Coordination, autojump_clock: Clock
) -> None:
    talk.log.commit_seconds = 1
    answers: dict[str, Any] = {}

    async def ask(name: str) -> None:
        answers[name] = await talk.init(name)

    # The last one fits into no batch. It alone is refused.
    names = [*LONG, "short", "y" * 4_000]
    await ask("first")
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(ask, name)
    refused = [name for name in names if answers[name].error_code]
    assert refused == ["y" * 4_000]
    assert await states(talk, *names[:-1]) == ["Empty"] * 7
