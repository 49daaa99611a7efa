import pytest

from ottla.replication.controller import assignment
from ottla.replication.controller.assignment import place_replicas
from ottla.wire.errors import ErrorCode, KafkaError


def test_leaders_and_followers_are_spread_evenly() -> None:
    placed = place_replicas(dict.fromkeys((1, 2, 3, 4)), partition_count=24, replication_factor=3)
    assert all(len(set(replicas)) == 3 for replicas in placed)
    for position in range(3):
        held = [replicas[position] for replicas in placed]
        assert {held.count(broker) for broker in (1, 2, 3, 4)} == {6}
    followers_of_1 = {replicas[1:] for replicas in placed if replicas[0] == 1}
    assert len(followers_of_1) > 1


def test_neighbours_come_from_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    placed = place_replicas(racks, partition_count=6, replication_factor=3)
    assert all(len({racks[broker] for broker in replicas}) == 3 for replicas in placed)


def test_a_single_broker_takes_everything() -> None:
    assert place_replicas({7: None}, partition_count=3, replication_factor=1, start=5) == [(7,)] * 3


@pytest.mark.parametrize(
    ("brokers", "factor", "message"),
    [
        ((1,), 0, "Invalid replication factor 0: the replication factor must be positive."),
        ((), 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        (
            (1,),
            3,
            (
                "The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some "
                "brokers have all their log directories cordoned."
            ),
        ),
    ],
)
def test_impossible_factors_are_refused(brokers: tuple[int, ...], factor: int, message: str) -> None:
    with pytest.raises(KafkaError) as failure:
        place_replicas(dict.fromkeys(brokers), partition_count=1, replication_factor=factor)
    assert failure.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert failure.value.message == message


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_ten_thousand_partitions_take_no_more_thought_than_one_round(
    monkeypatch: pytest.MonkeyPatch, factor: int
) -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: None}
    one_by_one = [
        place_replicas(racks, partition_count=1, replication_factor=factor, start=start)[0] for start in range(5, 105)
    ]
    choose, chosen = assignment._replicas, []
    monkeypatch.setattr(assignment, "_replicas", lambda *given: chosen.append(given) or choose(*given))
    assert place_replicas(racks, partition_count=100, replication_factor=factor, start=5) == one_by_one
    place_replicas(racks, partition_count=10_000, replication_factor=factor)
    assert len(chosen) == 24
