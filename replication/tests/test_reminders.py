"""What is said again and again is logged at once, then once a minute with how often it came, whoever makes it up."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.reminders import INTERVAL_S, SOURCE_MAX, Reminders


class Said:
    """Reminders on a clock of the test's own, and what they have logged."""

    def __init__(self, kept_max: int = 1_000) -> None:
        self.lines: list[str] = []
        self.now_s = 0.0
        self.reminders = Reminders(kept_max, lambda: self.now_s)

    def tell(self, name: object, text: str = "%s again", *arguments: object, source: object = None) -> list[str]:
        """What was logged for this one."""
        before = len(self.lines)
        self.reminders.tell(name, self._log, text, *(arguments or (name,)), source=source)
        return self.lines[before:]

    @property
    def _log(self) -> Callable[..., None]:
        return lambda text, *arguments: self.lines.append(text % arguments)


def test_the_same_is_said_at_once_and_then_once_a_minute_with_its_count() -> None:
    said = Said()
    assert said.tell("a") == ["a again"]
    for said.now_s in (0.0, 1.0, INTERVAL_S - 0.1):
        assert said.tell("a") == []
    assert said.tell("b") == ["b again"]
    said.now_s = INTERVAL_S
    assert said.tell("a") == ["a again (3 more like this since the last line)"]
    said.now_s = 2 * INTERVAL_S
    assert said.tell("a") == ["a again"]


def test_beyond_the_limit_others_are_counted_as_one() -> None:
    said = Said(kept_max=2)
    assert [len(said.tell(name)) for name in "abcde"] == [1, 1, 1, 0, 0]
    said.now_s = INTERVAL_S
    assert said.tell("a") == ["a again"]
    assert said.tell("f") == ["f again"]
    said.now_s = 2 * INTERVAL_S
    assert said.tell("g") == ["g again"]


def test_who_makes_up_names_takes_no_room_from_others() -> None:
    said = Said(kept_max=3 * SOURCE_MAX)
    assert [len(said.tell(number, source="bad")) for number in range(4 * SOURCE_MAX)].count(1) == SOURCE_MAX + 1
    assert said.tell("new", source="good") == ["new again"]
    # The names of the minute before make room.
    said.now_s = INTERVAL_S
    assert said.tell("another", source="bad") == ["another again"]
    assert said.tell(SOURCE_MAX - 1, source="bad") == [f"{SOURCE_MAX - 1} again"]


COURSES = st.lists(st.tuples(st.integers(0, 60), st.floats(0, 10), st.none() | st.integers(0, 2)), max_size=300)


@given(COURSES, st.integers(1, 60))
def test_nobody_fills_the_log_or_the_memory(course: list[tuple[int, float, int | None]], kept_max: int) -> None:
    said = Said(kept_max)
    logged_at: list[float] = []
    for name, pause_s, source in course:
        said.now_s += pause_s
        logged_at += [said.now_s] * len(said.tell(name, source=source))
        reminders = said.reminders
        assert len(reminders._due) <= kept_max
        assert reminders._untold.keys() <= reminders._due.keys()
        assert reminders._source_of.keys() == {each for names in reminders._names_of.values() for each in names}
        assert reminders._source_of.keys() <= reminders._due.keys() and all(reminders._names_of.values())
    for begin_s in logged_at:
        assert sum(begin_s <= each < begin_s + INTERVAL_S for each in logged_at) <= 2 * (kept_max + 1)
