"""`light_dataclass`: `dataclasses.dataclass` for classes of which few objects are made, such as the settings.

The library writes six functions for each class and compiles them. A start declares some fifty such classes, which took a sixth of
its time. Here all classes share their methods, which look at the fields when they are called. So an object costs some microseconds
more to make or to compare, and reading it costs the same. What is made for each partition, or more often, is a `dataclass`.

It takes `frozen=True` and `kw_only`; `fields` and `replace` of the library work. There are no `slots`, for which the library makes
each class twice. A `light_dataclass` and a `dataclass` cannot inherit from each other.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["light_dataclass"]

_KEPT: Final = "__light_fields__"


def _make(self: Any, *given: Any, **named: Any) -> None:
    """`__init__`. TypeError if an argument is missing or is not known, as the library's."""
    positional = iter(given)
    for field in getattr(type(self), _KEPT):
        name = field.name
        if not field.kw_only and (value := next(positional, MISSING)) is not MISSING:
            pass  # if it is named as well, that is left over
        elif name in named:
            value = named.pop(name)
        elif field.default is not MISSING:
            value = field.default
        elif field.default_factory is not MISSING:
            value = field.default_factory()
        else:
            raise TypeError(f"{type(self).__qualname__}.__init__() is missing the argument {name!r}")
        object.__setattr__(self, name, value)
    if named or next(positional, MISSING) is not MISSING:
        unknown = ", ".join(map(repr, named)) or "too many"
        raise TypeError(f"{type(self).__qualname__}.__init__() got unexpected arguments: {unknown}")


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, field.name) for field in getattr(type(self), _KEPT))


def _equals(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _show(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in getattr(type(self), _KEPT) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS: Final = {
    "__init__": _make,
    "__eq__": _equals,
    "__hash__": _hash,
    "__repr__": _show,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
}

if TYPE_CHECKING:
    from dataclasses import dataclass as light_dataclass
else:

    def light_dataclass(*, frozen: bool, kw_only: bool = False) -> Callable[[type], type]:
        """See the module's docstring."""
        assert frozen, "objects that change are made often: use dataclass"

        def make_light(cls: type) -> type:
            own = cls.__dict__
            # The library would make the docstring of a signature.
            assert own.get("__doc__"), f"{cls.__qualname__} needs a docstring"
            light = dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
            setattr(light, _KEPT, fields(light))
            for name, method in _METHODS.items():
                if name not in own or name == "__hash__":
                    setattr(light, name, method)
            return light

        return make_light
