"""A light dataclass does what the library's does; each test asks both."""

from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from ottla.wire.light_dataclass import light_dataclass


def both(**how: bool) -> list[Any]:
    """The same class and one that inherits from it, made by the library and lightly."""
    made = []
    for decorator in (dataclass, light_dataclass):

        @decorator(frozen=True, **how)
        class Base:
            """A base."""

            name: str
            secret: str = field(default="x", repr=False)

        @decorator(frozen=True, **how)
        class Sub(Base):
            """With more."""

            names: list[str] = field(default_factory=list)

            def shout(self) -> str:
                return self.name.upper()

        made.append(Sub)
    return made


HOW = [{}, {"kw_only": True}]


@pytest.mark.parametrize("how", HOW)
def test_objects_hold_show_and_compare_the_same(how: dict[str, bool]):
    library, light = both(**how)
    for cls in (library, light):
        one, other = cls(name="a"), cls(name="a", secret="x", names=[])
        assert (one.name, one.secret, one.names, one.shout()) == ("a", "x", [], "A")
        assert one == other
        assert one.names is not other.names
        assert one != replace(one, secret="y")
        assert one != "a"
        assert [each.name for each in fields(cls)] == ["name", "secret", "names"]
    assert repr(light(name="a")) == repr(library(name="a"))
    assert library(name="a") != light(name="a")


def test_arguments_may_stand_in_their_order():
    for cls in both():
        assert cls("a", "b") == cls(name="a", secret="b")


@pytest.mark.parametrize("how", HOW)
def test_wrong_arguments_are_refused(how: dict[str, bool]):
    for cls in both(**how):
        for given, named in [((), {}), ((), {"name": "a", "age": 1}), (("a", "b", [], 4), {}), (("a",), {"name": "a"})]:
            with pytest.raises(TypeError):
                cls(*given, **named)


@pytest.mark.parametrize("how", HOW)
def test_objects_do_not_change(how: dict[str, bool]):
    for cls in both(**how):
        one = cls(name="a")
        with pytest.raises(FrozenInstanceError):
            one.name = "b"
        with pytest.raises(FrozenInstanceError):
            del one.name
        assert one.name == "a"


def test_equal_objects_have_the_same_hash():
    for decorator in (dataclass, light_dataclass):

        @decorator(frozen=True)
        class Point:
            """Two numbers."""

            x: int
            y: int

        assert len({Point(1, 2), Point(1, 2), Point(2, 1)}) == 2


def test_a_class_keeps_the_methods_that_it_has():
    for decorator in (dataclass, light_dataclass):

        @decorator(frozen=True)
        class Password:
            """Not to be shown."""

            text: str

            def __repr__(self) -> str:
                return "(hidden)"

        assert repr(Password("a")) == "(hidden)"
