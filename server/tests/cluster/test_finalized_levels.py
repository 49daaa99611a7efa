"""Levels of features as the controller finalizes them, against a tree in memory and puppets of brokers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create, Delete, NoNode, SetData
from ottla.server.cluster.features import (
    SAFE_DOWNGRADE,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    UPGRADE,
    Levels,
    Update,
    decode_levels,
    encode_levels,
    supported_levels,
)
from ottla.server.tests.puppets import Theatre, open_theatre
from ottla.wire.errors import ErrorCode, KafkaError

NEWEST = supported_levels()
BEFORE = {**NEWEST, TRANSACTION_VERSION: 1}
"""Of a release before this one."""
KAFKAS = b'{"version":2,"status":1,"features":{}}'


@pytest.fixture
async def theatre(autojump_clock: MockClock) -> AsyncIterator[Theatre]:
    async with open_theatre() as theatre:
        yield theatre


async def levels(theatre: Theatre) -> Levels | None:
    """In the tree, when the controller has done all that is due."""
    if theatre.active is not None:
        await theatre.active.reassignments()  # its turn comes behind everything that was to be looked at
    try:
        return decode_levels((await theatre.operator.get(znodes.FEATURE)).data)
    except NoNode:
        return None


async def until_live(theatre: Theatre, *node_ids: int) -> None:
    await theatre.until(lambda: theatre.controller.states.brokers.keys() == {*node_ids})


async def change(theatre: Theatre, *updates: tuple[str, int, int], validate_only: bool = False) -> str:
    """The words of a refusal; "": all was done."""
    try:
        await theatre.controller.update_features([Update(*each) for each in updates], validate_only=validate_only)
    except KafkaError as error:
        return str(error.message)
    return ""


async def test_a_new_cluster_finalizes_the_newest_levels_at_once(theatre: Theatre) -> None:
    await theatre.up(1, 2, features=NEWEST)
    await theatre.stand(1)
    assert await levels(theatre) == Levels(NEWEST)
    written = json.loads((await theatre.operator.get(znodes.FEATURE)).data)
    # As Kafka writes them, so that its brokers see what they do not support.
    assert written == {
        "version": 2,
        "status": 1,
        "features": {name: {"max_version_level": level} for name, level in NEWEST.items()},
        "set": [],
    }
    # Another controller leaves it as it is.
    await theatre.operator.multi([Delete(znodes.CONTROLLER)])
    await theatre.until(lambda: theatre.active is not None and theatre.active.epoch == 2)
    await levels(theatre)
    assert (await theatre.operator.get(znodes.FEATURE)).version == 0


async def test_a_level_waits_until_all_brokers_support_it(theatre: Theatre) -> None:
    await theatre.up(1, 2, features=NEWEST)
    await theatre.up(3, features=BEFORE)
    await theatre.stand(1)
    assert await levels(theatre) == Levels(BEFORE)
    await theatre.down(3)
    await theatre.up(3, features=NEWEST)
    await theatre.until(lambda: len(theatre.controller.states.brokers) == 3)
    await theatre.until_told_of(3)
    assert await levels(theatre) == Levels(NEWEST)


async def test_brokers_that_know_nothing_of_features_leave_a_cluster_without(
    theatre: Theatre, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await theatre.up(1, features=NEWEST)
    await theatre.up(2)
    await theatre.stand(1)
    assert await levels(theatre) is None
    assert "Levels of features are not raised before brokers [2] support them" in caplog.messages
    await theatre.down(2)
    await until_live(theatre, 1)
    assert await levels(theatre) == Levels(NEWEST)


async def test_a_broker_that_is_away_may_come_back_as_the_release_before(theatre: Theatre) -> None:
    await theatre.up(1, 2, features=NEWEST)
    await theatre.up(3)
    await theatre.stand(1)
    await theatre.create("t", (1, 2), (2, 3))
    await theatre.until_led(2, index=1)
    await theatre.down(3)
    await until_live(theatre, 1, 2)
    assert await levels(theatre) is None
    await theatre.up(3)
    await until_live(theatre, 1, 2, 3)
    assert await levels(theatre) is None
    await theatre.down(3)
    await theatre.up(3, features=NEWEST)
    await until_live(theatre, 1, 2, 3)
    await theatre.until_told_of(3)
    assert await levels(theatre) == Levels(NEWEST)


async def test_a_node_of_kafka_is_left_to_the_operator(theatre: Theatre) -> None:
    await theatre.operator.multi([Create(znodes.FEATURE, KAFKAS)])
    await theatre.up(1, features=NEWEST)
    await theatre.stand(1)
    assert await levels(theatre) == Levels(is_ours=False)
    assert await change(theatre, (TRANSACTION_VERSION, 2, UPGRADE)) == ""
    # Whoever sets a level will have no broker of Kafka again: the others follow.
    assert await levels(theatre) == Levels(NEWEST, frozenset([TRANSACTION_VERSION]))


async def test_what_somebody_has_set_stays(theatre: Theatre) -> None:
    await theatre.up(1, 2, features=NEWEST)
    await theatre.stand(1)
    assert await change(theatre, (TRANSACTION_VERSION, 0, SAFE_DOWNGRADE), (SHARE_VERSION, 1, SAFE_DOWNGRADE)) == ""
    lowered = Levels({**NEWEST, SHARE_VERSION: 1}, frozenset([TRANSACTION_VERSION, SHARE_VERSION]))
    lowered.finalized.pop(TRANSACTION_VERSION)  # type: ignore[attr-defined]
    assert await levels(theatre) == lowered
    for features in ({}, NEWEST):  # back to the release before, and forth again
        await theatre.down(2)
        await theatre.up(2, features=features)
        await until_live(theatre, 1, 2)
        assert await levels(theatre) == lowered
    assert await change(theatre, (TRANSACTION_VERSION, 2, UPGRADE)) == ""
    assert (await levels(theatre) or Levels()).finalized[TRANSACTION_VERSION] == 2


async def test_changes_that_are_refused_change_nothing(theatre: Theatre) -> None:
    await theatre.up(1, features=NEWEST)
    await theatre.up(2, features=BEFORE)
    await theatre.up(3, features={TRANSACTION_VERSION: 1})
    await theatre.stand(1)
    prefix = "Invalid update version"
    for update, words in (
        ((TRANSACTION_VERSION, 2, UPGRADE), "2 for feature transaction.version. Broker 2 only supports versions 0-1"),
        ((SHARE_VERSION, 1, UPGRADE), "1 for feature share.version. Broker 3 does not support this feature."),
        (
            (TRANSACTION_VERSION, 3, UPGRADE),
            "3 for feature transaction.version. Local controller 1 only supports versions 0-2",
        ),
        (("x", 1, UPGRADE), "1 for feature x. Local controller 1 does not support this feature."),
    ):
        assert await change(theatre, (TRANSACTION_VERSION, 0, SAFE_DOWNGRADE), update) == f"{prefix} {words}"
    assert await change(theatre, (TRANSACTION_VERSION, 0, SAFE_DOWNGRADE), validate_only=True) == ""
    assert await levels(theatre) == Levels({TRANSACTION_VERSION: 1})


async def test_a_broker_without_a_finalized_level_is_left_out(
    theatre: Theatre, caplog: pytest.LogCaptureFixture
) -> None:
    await theatre.up(1, features=NEWEST)
    await theatre.stand(1)
    await levels(theatre)
    await theatre.up(2)
    await theatre.up(3, features=BEFORE)
    await theatre.create("t", (1,))  # is looked at behind the brokers
    await theatre.until(lambda: theatre.known("t"))
    assert theatre.controller.states.brokers.keys() == {1}
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        f"Broker {number} is left out: its release does not support transaction.version=2, which this cluster uses. Start a newer"
        " release there, or lower the level (ottla features downgrade)"
        for number in (2, 3)
    ]
    # As soon as the level is low enough they come. The other features concern one coordinator alone.
    assert await change(theatre, (TRANSACTION_VERSION, 1, SAFE_DOWNGRADE)) == ""
    assert theatre.controller.states.brokers.keys() == {1, 3}
    assert await change(theatre, (TRANSACTION_VERSION, 0, SAFE_DOWNGRADE)) == ""
    assert theatre.controller.states.brokers.keys() == {1, 2, 3}


async def test_a_broker_that_comes_back_without_a_level_has_lost_what_it_led(theatre: Theatre) -> None:
    await theatre.up(1, 2, features=NEWEST)
    await theatre.stand(1)
    await theatre.create("t", (2, 1))
    await theatre.until_led(2)
    await theatre.down(2)
    await theatre.up(2)
    await theatre.until(lambda: (state := theatre.known("t")) and (state.leader, state.isr) == (1, (1,)))
    assert theatre.controller.states.brokers.keys() == {1}


async def test_what_others_write_counts(theatre: Theatre) -> None:
    await theatre.up(1, features=NEWEST)
    await theatre.up(2, features=BEFORE)
    await theatre.stand(1)
    assert await levels(theatre) == Levels(BEFORE)
    node = await theatre.operator.get(znodes.FEATURE)
    await theatre.operator.multi([SetData(znodes.FEATURE, encode_levels(Levels(NEWEST)), node.version)])
    await until_live(theatre, 1)
    assert await change(theatre, (TRANSACTION_VERSION, 0, SAFE_DOWNGRADE)) == ""
    await theatre.operator.multi([Delete(znodes.FEATURE)])
    await until_live(theatre, 1, 2)
    await trio.testing.wait_all_tasks_blocked()
    assert await levels(theatre) == Levels(BEFORE)


async def test_a_change_meets_one_of_somebody_else(theatre: Theatre, monkeypatch: pytest.MonkeyPatch) -> None:
    await theatre.up(1, features=NEWEST)
    candidate = await theatre.stand(1)
    await levels(theatre)
    multi = candidate.session.multi

    async def late(operations: Any) -> Any:
        monkeypatch.undo()
        node = await theatre.operator.get(znodes.FEATURE)
        data = encode_levels(Levels({**NEWEST, SHARE_VERSION: 1}, frozenset([SHARE_VERSION])))
        await theatre.operator.multi([SetData(znodes.FEATURE, data, node.version)])
        return await multi(operations)

    monkeypatch.setattr(candidate.session, "multi", late)
    assert await change(theatre, (TRANSACTION_VERSION, 1, SAFE_DOWNGRADE)) == ""
    expected = Levels({**BEFORE, SHARE_VERSION: 1}, frozenset([SHARE_VERSION, TRANSACTION_VERSION]))
    assert await levels(theatre) == expected


async def test_a_controller_that_resigns_says_so(theatre: Theatre) -> None:
    await theatre.up(1, features=NEWEST)
    await theatre.stand(1)
    controller = theatre.controller
    await theatre.operator.multi([Delete(znodes.CONTROLLER)])
    await theatre.until(lambda: theatre.active is not controller and theatre.active is not None)
    with pytest.raises(KafkaError) as caught:
        await controller.update_features([Update(TRANSACTION_VERSION, 1, SAFE_DOWNGRADE)], validate_only=False)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
