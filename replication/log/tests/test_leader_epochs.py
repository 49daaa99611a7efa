"""Leader epochs: assignment, end offsets, cutting at both ends. The cases are those of Kafka's own cache."""

from __future__ import annotations

import pytest

from ottla.replication.log.leader_epochs import LeaderEpochs

LOG_END_OFFSET = 100


def test_without_epochs_nothing_is_known() -> None:
    epochs = LeaderEpochs()
    assert epochs.latest_epoch == -1
    assert epochs.end_offset_for(0, LOG_END_OFFSET) == (-1, -1)
    assert epochs.epoch_for_offset(5) is None


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),  # below the first known epoch: it ended where that one began
        (2, (2, 20)),
        (3, (2, 20)),  # never led: the largest below it
        (4, (4, 30)),
        (7, (7, LOG_END_OFFSET)),  # the present one goes on
        (8, (-1, -1)),  # not known yet
    ],
)
def test_where_an_epoch_ended(asked: int, answer: tuple[int, int]) -> None:
    epochs = LeaderEpochs([(2, 10), (4, 20), (7, 30)])
    assert epochs.end_offset_for(asked, LOG_END_OFFSET) == answer


@pytest.mark.parametrize(("offset", "epoch"), [(9, None), (10, 2), (19, 2), (20, 4), (29, 4), (30, 7), (1000, 7)])
def test_which_epoch_an_offset_belongs_to(offset: int, epoch: int | None) -> None:
    assert LeaderEpochs([(2, 10), (4, 20), (7, 30)]).epoch_for_offset(offset) == epoch


def test_an_epoch_is_assigned_once() -> None:
    epochs = LeaderEpochs([(2, 10)])
    epochs.assign(2, 15)
    assert (epochs.entries, epochs.is_dirty) == ([(2, 10)], False)
    epochs.assign(2, 5)
    assert (epochs.entries, epochs.is_dirty) == ([(2, 5)], True)


@pytest.mark.parametrize(
    ("new", "entries"),
    [
        ((8, 40), [(2, 10), (4, 20), (7, 30), (8, 40)]),
        ((8, 30), [(2, 10), (4, 20), (8, 30)]),  # epoch 7 never wrote anything
        ((8, 15), [(2, 10), (8, 15)]),
        ((4, 40), [(2, 10), (4, 40)]),  # as after an unclean election
        ((1, 5), [(1, 5)]),
    ],
)
def test_an_entry_that_contradicts_later_ones_replaces_them(
    new: tuple[int, int], entries: list[tuple[int, int]]
) -> None:
    epochs = LeaderEpochs([(2, 10), (4, 20), (7, 30)])
    epochs.assign(*new)
    assert (epochs.entries, epochs.is_dirty) == (entries, True)


@pytest.mark.parametrize(
    ("batch", "entries"),
    [
        ((4, 25), [(2, 10), (4, 20), (7, 30)]),
        ((7, 30), [(2, 10), (4, 20), (7, 30)]),
        ((8, 35), [(2, 10), (4, 20), (7, 30), (8, 35)]),
        ((4, 30), [(2, 10), (4, 20)]),
        ((5, 31), [(2, 10), (4, 20), (5, 31)]),
        ((2, 25), [(2, 10)]),
        ((1, 12), [(1, 12)]),
        ((1, 5), [(2, 10), (4, 20), (7, 30)]),  # which does not say that others began before it
    ],
)
def test_batches_are_right_about_their_epochs(batch: tuple[int, int], entries: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs([(2, 10), (4, 20), (7, 30)])
    epochs.confirm(*batch)
    assert epochs.entries == entries


@pytest.mark.parametrize(
    ("end", "entries"),
    [(31, [(2, 10), (4, 20), (7, 30)]), (30, [(2, 10), (4, 20)]), (11, [(2, 10)]), (10, []), (0, [])],
)
def test_cutting_the_end_forgets_epochs_that_begin_there(end: int, entries: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs([(2, 10), (4, 20), (7, 30)])
    epochs.truncate_from_end(end)
    assert (epochs.entries, epochs.is_dirty) == (entries, len(entries) < 3)


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (5, [(2, 10), (4, 20), (7, 30)]),
        (10, [(2, 10), (4, 20), (7, 30)]),
        (15, [(2, 15), (4, 20), (7, 30)]),
        (20, [(4, 20), (7, 30)]),
        (50, [(7, 50)]),
    ],
)
def test_cutting_the_start_keeps_the_epoch_in_force_there(start: int, entries: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs([(2, 10), (4, 20), (7, 30)])
    epochs.truncate_from_start(start)
    assert epochs.entries == entries
    assert epochs.is_dirty == (entries != [(2, 10), (4, 20), (7, 30)])
