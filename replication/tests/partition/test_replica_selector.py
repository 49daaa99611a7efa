"""Choice of the replica that a consumer reads from."""

from __future__ import annotations

from ottla.replication.partition.followers import Holder
from ottla.replication.partition.replica_selector import in_same_rack

RACKS = {1: "a", 2: "b", 3: "b", 4: "b"}
FOLLOWERS = [Holder(2, 10, 500), Holder(3, 20, 400), Holder(4, 20, 300)]


def test_a_consumer_without_a_rack_reads_from_the_leader():
    assert in_same_rack("", 1, FOLLOWERS, RACKS.get) is None


def test_the_leader_is_best_if_it_is_in_the_rack():
    assert in_same_rack("b", 2, FOLLOWERS, RACKS.get) is None


def test_where_no_replica_is_in_the_rack_the_leader_serves():
    assert in_same_rack("c", 1, FOLLOWERS, RACKS.get) is None
    assert in_same_rack("b", 1, [], RACKS.get) is None


def test_the_longest_log_in_the_rack_wins_and_then_who_was_caught_up_last():
    assert in_same_rack("b", 1, FOLLOWERS, RACKS.get) == 3
    assert in_same_rack("b", 1, [Holder(2, 30, 1), *FOLLOWERS], RACKS.get) == 2
