"""The memory of happenings: what is kept, counted and forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.happenings import (
    KEPT_PER_KIND,
    NAME_LENGTH_MAX,
    REPEATED_MS,
    TEXT_LENGTH_MAX,
    Happenings,
    cut,
    in_seconds,
)


class Noted:
    """Happenings with a clock that moves only when told."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.happenings = Happenings(lambda: self.now_ms)

    def causes(self, kind: str = "kind") -> list[str]:
        return [each.cause for each in self.happenings if each.kind == kind]


def test_happenings_come_in_the_order_in_which_they_began() -> None:
    noted = Noted()
    for number, kind in enumerate(("b", "a", "b")):
        noted.happenings.note(kind, f"cause {number}", topic="t", partition=number)
        noted.now_ms += 1
    assert [(each.kind, each.cause, each.first_ms) for each in noted.happenings] == [
        ("b", "cause 0", 1_000),
        ("a", "cause 1", 1_001),
        ("b", "cause 2", 1_002),
    ]
    assert [each.cause for each in noted.happenings if each.is_about({"topic": "t", "partition": 1})] == ["cause 1"]
    assert not [each for each in noted.happenings if each.is_about({"group": "t"})]


def test_a_repetition_is_counted_and_shows_the_latest_cause() -> None:
    noted = Noted()
    noted.happenings.note("kind", "at offset 1", topic="t", error="E")
    noted.now_ms += REPEATED_MS - 1
    noted.happenings.note("kind", "at offset 2", topic="t", error="E")
    (found,) = noted.happenings
    assert (found.cause, found.count, found.first_ms, found.last_ms) == ("at offset 2", 2, 1_000, noted.now_ms)
    noted.now_ms += REPEATED_MS
    noted.happenings.note("kind", "at offset 3", topic="t", error="E")
    noted.happenings.note("kind", "at offset 3", topic="u", error="E")
    assert noted.causes() == ["at offset 2", "at offset 3", "at offset 3"]


def test_without_an_error_only_the_very_same_sentence_is_a_repetition() -> None:
    noted = Noted()
    for cause in ("a left", "b left", "b left"):
        noted.happenings.note("kind", cause, group="g")
    assert [(each.cause, each.count) for each in noted.happenings] == [("a left", 1), ("b left", 2)]


def test_the_source_of_most_happenings_loses_its_oldest_one() -> None:
    noted = Noted()
    noted.happenings.note("kind", "ours", source="quiet", group="ours")
    for number in range(3 * KEPT_PER_KIND):
        noted.happenings.note("kind", f"theirs {number}", source="loud", group=str(number))
    noted.happenings.note("other kind", "theirs", source="loud")
    causes = noted.causes()
    assert len(causes) == KEPT_PER_KIND
    assert causes[0] == "ours" and causes[-1] == f"theirs {3 * KEPT_PER_KIND - 1}"


def test_what_is_forgotten_is_no_repetition_later() -> None:
    noted = Noted()
    for number in range(KEPT_PER_KIND + 1):
        noted.happenings.note("kind", str(number), source="s")
    noted.happenings.note("kind", "0", source="s")
    assert noted.causes()[-1] == "0" and len(noted.causes()) == KEPT_PER_KIND


def test_texts_and_names_are_cut() -> None:
    noted = Noted()
    noted.happenings.note("kind", "x" * 10_000, source="g" * 10_000, group="g" * 10_000, partition=3)
    (found,) = noted.happenings
    assert len(found.source) == NAME_LENGTH_MAX
    assert found.is_about({"group": "g" * 10_000}) and not found.is_about({"group": "h" * 10_000})
    assert len(found.cause) == TEXT_LENGTH_MAX and found.cause.endswith("...")
    assert found.facts == {"group": "g" * (NAME_LENGTH_MAX - 3) + "...", "partition": 3}
    assert cut("short") == "short"


def test_durations_in_seconds() -> None:
    assert [in_seconds(each) for each in (0, 10_000, 250, 1_500, 100_000)] == [
        "0 s",
        "10 s",
        "0.25 s",
        "1.5 s",
        "100 s",
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]), st.integers(0, 400), st.booleans(), st.integers(0, 2 * REPEATED_MS)
        ),
        max_size=600,
    )
)
def test_each_kind_stays_bounded_and_counts_all(noted_ones: list[tuple[str, int, bool, int]]) -> None:
    noted = Noted()
    for source, number, has_error, passed_ms in noted_ones:
        noted.now_ms += passed_ms
        error = {"error": "E"} if has_error else {}
        noted.happenings.note("kind", f"cause {number}", source=source, topic=str(number), **error)
    kept = list(noted.happenings)
    assert len(kept) <= KEPT_PER_KIND
    assert sum(each.count for each in kept) <= len(noted_ones)
    if len(kept) < KEPT_PER_KIND:
        assert sum(each.count for each in kept) == len(noted_ones)
    assert [each.number for each in kept] == sorted({each.number for each in kept})
