"""Comparison of two JSON Schemas by the rules of `json_rules.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from ottla.server.registry.schemas.format import InvalidText
from ottla.server.registry.schemas.json_rules import BOUNDS, COMPATIBLE, Difference
from ottla.server.registry.schemas.json_shapes import ALL, ANY, ONE, Shape, Shapes

STEPS_MAX = 50_000
"""Pairs of schemas that are compared, so that alternatives of alternatives have an end."""


def differences(original: Shapes, update: Shapes, compatible: frozenset[str] = COMPATIBLE) -> list[Difference]:
    """Return the incompatible differences between `original`, the writer's schema, and `update`, the reader's."""
    known_bad: frozenset[tuple[int, int]] = frozenset()
    while True:
        comparison = _Comparison(original, update, known_bad, compatible)
        found = comparison.compare(original.root, update.root)
        bad = comparison.bad_pairs()
        # A pair that leads back to itself was taken to be compatible. If it is not, what was concluded from it may be wrong.
        if not comparison.has_assumed or bad == known_bad:
            return [Difference(name, f"#/{path}") for name, path in found if name not in compatible]
        known_bad = bad


_Found = list[tuple[str, str]]
"""Names of differences, and their places below a pair of schemas."""


class _Comparison:
    """Comparison of two JSON Schema documents. Each pair of subschemas is compared only once."""

    def __init__(
        self, original: Shapes, update: Shapes, known_bad: frozenset[tuple[int, int]], compatible: frozenset[str]
    ) -> None:
        self._original, self._update, self._known_bad = original, update, known_bad
        self._results: dict[tuple[int, int], _Found | None] = {}
        self._compatible = compatible
        self.has_assumed = False

    def bad_pairs(self) -> frozenset[tuple[int, int]]:
        return frozenset(
            pair for pair, found in self._results.items() if found is not None and not self._is_fine(found)
        )

    def _is_fine(self, found: Sequence[tuple[str, str]]) -> bool:
        return all(name in self._compatible for name, _ in found)

    def compare(self, original: Shape, update: Shape) -> _Found:
        """Compare two schemas; return differences with paths relative to these schemas."""
        pair = (id(original), id(update))
        if pair in self._results:
            found = self._results[pair]
            if found is not None:
                return found
            self.has_assumed = True
            return [("TYPE_CHANGED", "")] if pair in self._known_bad else []
        if len(self._results) >= STEPS_MAX:
            raise InvalidText(f"to compare it takes more than {STEPS_MAX:,} steps")
        self._results[pair] = None
        found = self._results[pair] = self._compared(original, update)
        return found

    def _compared(self, original: Shape, update: Shape) -> _Found:
        alone = self._one_of_many(original, update)
        if alone is not None:
            return alone
        if original.kind != update.kind:
            is_fine = original.kind == "false" or update.kind == "empty"
            is_bytes = original.get("connect.type") == update.get("connect.type") == "bytes"
            return [] if is_fine or is_bytes else [("TYPE_CHANGED", "")]
        found: _Found = [(name, "") for keyword, name in _ANNOTATIONS if original.get(keyword) != update.get(keyword)]
        for kind, keyword, name in BOUNDS:
            if kind == original.kind:
                found += _of_bound(keyword, name, original.number(keyword), update.number(keyword))
        return found + self._of_kind(original, update)

    def _one_of_many(self, original: Shape, update: Shape) -> _Found | None:
        """Compare a plain schema with a part of a combined one that fits; None if there is no such part."""
        if (original.kind == "combined") == (update.kind == "combined"):
            return None
        many = update if update.kind == "combined" else original
        name = ""
        if len(many.parts) != 1:
            if many is update and many.criterion in (ANY, ONE):
                name = "SUM_TYPE_EXTENDED"
            elif many is original and many.criterion == ALL:
                name = "PRODUCT_TYPE_NARROWED"
            else:
                return None
        for part in many.parts:
            found = self.compare(original, part) if many is update else self.compare(part, update)
            if self._is_fine(found):
                return [*found, (name, "")] if name else found
        return None

    def _of_kind(self, original: Shape, update: Shape) -> _Found:
        by_kind: dict[str, Callable[[Shape, Shape], _Found]] = {
            "string": _of_string,
            "number": _of_number,
            "enum": _of_enum,
            "const": _of_const,
            "not": self._of_not,
            "combined": self._of_combined,
            "object": self._of_object,
            "array": self._of_array,
        }
        compare = by_kind.get(original.kind)
        return [] if compare is None else compare(original, update)

    def _of_not(self, original: Shape, update: Shape) -> _Found:
        # What must not match is compared the other way round.
        before, after = (
            self._update.below(update, update.get("not")),
            self._original.below(original, original.get("not")),
        )
        found = differences_of(before, after, self._update, self._original, self._compatible)
        return [("NOT_TYPE_NARROWED" if self._is_fine(found) else "NOT_TYPE_EXTENDED", "not")]

    # --- combinations

    def _of_combined(self, original: Shape, update: Shape) -> _Found:
        found: _Found = []
        if original.criterion != update.criterion:
            alone = len(original.parts) == 1, len(update.parts) == 1
            is_extended = (
                update.criterion == ANY
                or all(alone)
                or (alone[0] and update.criterion == ONE)
                or (alone[1] and original.criterion == ALL)
            )
            if not is_extended:
                return [("COMBINED_TYPE_CHANGED", "")]
            found.append(("COMBINED_TYPE_EXTENDED", ""))
        before, after = _distinct(original.parts), _distinct(update.parts)
        if len(before) < len(after):
            found.append(("PRODUCT_TYPE_EXTENDED" if update.criterion == ALL else "SUM_TYPE_EXTENDED", ""))
        elif len(before) > len(after):
            found.append(("SUM_TYPE_NARROWED" if original.criterion in (ANY, ONE) else "PRODUCT_TYPE_NARROWED", ""))
        fitting = [
            [index for index, each in enumerate(after) if self._is_fine(self.compare(part, each))] for part in before
        ]
        if _matched(fitting) < min(len(before), len(after)):
            found.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ""))
        return found

    # --- objects

    def _of_object(self, original: Shape, update: Shape) -> _Found:
        return [
            *self._of_required(original, update),
            *self._of_properties(original, update),
            *self._of_dependencies(original, update),
            *self._of_more("additionalProperties", "ADDITIONAL_PROPERTIES", original, update),
            *self._of_unevaluated("unevaluatedProperties", "UNEVALUATED_PROPERTIES", original, update),
        ]

    def _of_required(self, original: Shape, update: Shape) -> _Found:
        found: _Found = []
        before, after = _names(original, "required"), _names(update, "required")
        for name in original.mapping("properties"):
            if name not in update.mapping("properties") or (name in before) == (name in after):
                continue
            if name in before:
                change = "REQUIRED_ATTRIBUTE_REMOVED"
            elif _has_default(update, name):
                change = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"
            else:
                change = "REQUIRED_ATTRIBUTE_ADDED"
            found.append((change, f"required/{name}"))
        return found

    def _of_properties(self, original: Shape, update: Shape) -> _Found:
        before, after = original.mapping("properties"), update.mapping("properties")
        found: _Found = []
        for name in dict.fromkeys([*before, *after]):
            if name not in after:
                below = self._removed(self._original.below(original, before[name]), update, name)
            elif name not in before:
                below = self._added(original, update, name)
            else:
                below = self.compare(
                    self._original.below(original, before[name]), self._update.below(update, after[name])
                )
            found += _at(f"properties/{name}", below)
        return found

    def _removed(self, gone: Shape, update: Shape, name: str) -> _Found:
        if _is_open(update, "additionalProperties", "unevaluatedProperties"):
            return [("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
        other = _schema_of_others(update, name)
        if other is None:
            is_never = gone.kind == "false"
            return [(f"PROPERTY_{'WITH_FALSE_' if is_never else ''}REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]
        found = self.compare(gone, self._update.below(update, other))
        how = "IS_COVERED" if self._is_fine(found) else "NOT_COVERED"
        return [*found, (f"PROPERTY_REMOVED_{how}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]

    def _added(self, original: Shape, update: Shape, name: str) -> _Found:
        new = self._update.below(update, update.mapping("properties")[name])
        need = "REQUIRED_PROPERTY" if name in _names(update, "required") else "OPTIONAL_PROPERTY"
        if need == "REQUIRED_PROPERTY" and _has_default(update, name):
            need += "_WITH_DEFAULT"
        if _is_open(original, "additionalProperties", "unevaluatedProperties"):
            need = "PROPERTY_WITH_EMPTY_SCHEMA" if new.kind == "empty" else need
            return [(f"{need}_ADDED_TO_OPEN_CONTENT_MODEL", "")]
        found: _Found = []
        other = _schema_of_others(original, name)
        if other is not None:
            found = self.compare(self._original.below(original, other), new)
            how = "IS_COVERED" if self._is_fine(found) else "NOT_COVERED"
            found = [*found, (f"PROPERTY_ADDED_{how}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
        return [*found, (f"{need}_ADDED_TO_UNOPEN_CONTENT_MODEL", "")]

    def _of_dependencies(self, original: Shape, update: Shape) -> _Found:
        found: _Found = []
        before, after = _dependencies(original), _dependencies(update)
        for name in dict.fromkeys([*before, *after]):
            found += _at(
                f"dependencies/{name}", self._of_dependency(original, update, before.get(name), after.get(name))
            )
        return found

    def _of_dependency(self, original: Shape, update: Shape, before: Any, after: Any) -> _Found:
        found: _Found = []
        old, new = _set_or_none(before), _set_or_none(after)
        if old is not None and new is None:
            found.append(("DEPENDENCY_ARRAY_REMOVED", ""))
        elif old is None and new is not None:
            found.append(("DEPENDENCY_ARRAY_ADDED", ""))
        elif old is not None and new is not None and old != new:
            how = "EXTENDED" if new > old else "NARROWED" if new < old else "CHANGED"
            found.append((f"DEPENDENCY_ARRAY_{how}", ""))
        has_old, has_new = isinstance(before, dict | bool), isinstance(after, dict | bool)
        if has_old and has_new:
            return found + self.compare(self._original.below(original, before), self._update.below(update, after))
        if has_old or has_new:
            found.append((f"DEPENDENCY_SCHEMA_{'REMOVED' if has_old else 'ADDED'}", ""))
        return found

    def _of_more(self, keyword: str, name: str, original: Shape, update: Shape) -> _Found:
        """Compare a keyword for additional content. Its value is false (none), a schema, or true or absent (any)."""
        before, after = original.get(keyword), update.get(keyword)
        if (before is False) != (after is False):
            return [(f"{name}_{'ADDED' if before is False else 'REMOVED'}", keyword)]
        old, new = isinstance(before, dict), isinstance(after, dict)
        if old and new:
            below = self.compare(self._original.below(original, before), self._update.below(update, after))
            return _at(keyword, below)
        if old or new:
            return [(f"{name}_{'EXTENDED' if old else 'NARROWED'}", keyword)]
        return []

    def _of_unevaluated(self, keyword: str, name: str, original: Shape, update: Shape) -> _Found:
        old, new = original.schema(keyword), update.schema(keyword)
        if old is None and new is None:
            return []
        before = None if old is None else self._original.below(original, old)
        after = None if new is None else self._update.below(update, new)
        ranks = [_width(before), _width(after)]
        if before is not None and after is not None and ranks == [1, 1]:
            return _at(keyword, self.compare(before, after))
        if before is not None and after is not None and ranks[0] == ranks[1]:
            return []
        if 0 in ranks:
            return [(f"{name}_{'ADDED' if ranks[0] == 0 else 'REMOVED'}", keyword)]
        is_wider = after is None or (before is not None and ranks[1] > ranks[0])
        return [(f"{name}_{'EXTENDED' if is_wider else 'NARROWED'}", keyword)]

    # --- arrays

    def _of_array(self, original: Shape, update: Shape) -> _Found:
        found = self._of_all_items(original, update) + self._of_items(original, update)
        if not _has_all_items(original) and not _has_all_items(update):
            found += self._of_more(_more_items(original, update), "ADDITIONAL_ITEMS", original, update)
        found += self._of_unevaluated("unevaluatedItems", "UNEVALUATED_ITEMS", original, update)
        before, after = original.get("uniqueItems") is True, update.get("uniqueItems") is True
        if before != after:
            found.append((f"UNIQUE_ITEMS_{'REMOVED' if before else 'ADDED'}", "uniqueItems"))
        return found

    def _of_all_items(self, original: Shape, update: Shape) -> _Found:
        old = original.schema("items") if _has_all_items(original) else None
        new = update.schema("items") if _has_all_items(update) else None
        if old is not None and new is not None:
            return _at("items", self.compare(self._original.below(original, old), self._update.below(update, new)))
        if old is not None or new is not None:
            return [(f"SCHEMA_{'REMOVED' if new is None else 'ADDED'}", "items")]
        return []

    def _of_items(self, original: Shape, update: Shape) -> _Found:
        before, after = _items(original), _items(update)
        found: _Found = []
        for index in range(max(len(before), len(after))):
            if index >= len(after):
                below = self._item_removed(self._original.below(original, before[index]), update)
            elif index >= len(before):
                below = self._item_added(original, self._update.below(update, after[index]))
            else:
                below = self.compare(
                    self._original.below(original, before[index]), self._update.below(update, after[index])
                )
            found += _at(f"items/{index}", below)
        return found

    def _item_removed(self, gone: Shape, update: Shape) -> _Found:
        if _is_open(update, _more_items(update, update), "unevaluatedItems"):
            return [("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
        other = _schema_of_other_items(update)
        if other is None:
            return [(f"ITEM_{'WITH_FALSE_' if gone.kind == 'false' else ''}REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]
        found = self.compare(gone, self._update.below(update, other))
        how = "IS_COVERED" if self._is_fine(found) else "NOT_COVERED"
        return [*found, (f"ITEM_REMOVED_{how}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]

    def _item_added(self, original: Shape, new: Shape) -> _Found:
        if _is_open(original, _more_items(original, original), "unevaluatedItems"):
            return [(f"ITEM_{'WITH_EMPTY_SCHEMA_' if new.kind == 'empty' else ''}ADDED_TO_OPEN_CONTENT_MODEL", "")]
        other = _schema_of_other_items(original)
        if other is None:
            return [("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", "")]
        found = self.compare(self._original.below(original, other), new)
        how = "IS_COVERED" if self._is_fine(found) else "NOT_COVERED"
        return [*found, (f"ITEM_ADDED_{how}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]


_ANNOTATIONS = (
    ("$id", "ID_CHANGED"),
    ("title", "TITLE_CHANGED"),
    ("description", "DESCRIPTION_CHANGED"),
    ("default", "DEFAULT_CHANGED"),
)


def differences_of(
    original: Shape, update: Shape, originals: Shapes, updates: Shapes, compatible: frozenset[str]
) -> _Found:
    """Compare two schemas afresh, without results of other comparisons; return the differences."""
    return _Comparison(originals, updates, frozenset(), compatible).compare(original, update)


def _at(path: str, found: _Found) -> _Found:
    return [(name, f"{path}/{below}" if below else path) for name, below in found]


def _of_bound(keyword: str, name: str, before: float | None, after: float | None) -> _Found:
    if before == after:
        return []
    if before is None:
        return [(f"{name}_ADDED", keyword)]
    if after is None:
        return [(f"{name}_REMOVED", keyword)]
    return [(f"{name}_{'INCREASED' if after > before else 'DECREASED'}", keyword)]


def _of_string(original: Shape, update: Shape) -> _Found:
    before, after = original.get("pattern"), update.get("pattern")
    if before == after:
        return []
    change = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
    return [(f"PATTERN_{change}", "pattern")]


def _of_number(original: Shape, update: Shape) -> _Found:
    found = _of_multiple(original.number("multipleOf"), update.number("multipleOf"))
    if original.is_integer != update.is_integer:
        found.append(("TYPE_EXTENDED" if original.is_integer else "TYPE_NARROWED", ""))
    return found


def _of_multiple(before: float | None, after: float | None) -> _Found:
    if before == after:
        return []
    if before is None or after is None:
        return [(f"MULTIPLE_OF_{'ADDED' if before is None else 'REMOVED'}", "multipleOf")]
    old, new = Fraction(str(before)), Fraction(str(after))
    if old and new % old == 0:
        return [("MULTIPLE_OF_EXPANDED", "multipleOf")]
    if new and old % new == 0:
        return [("MULTIPLE_OF_REDUCED", "multipleOf")]
    return [("MULTIPLE_OF_CHANGED", "multipleOf")]


def _of_enum(original: Shape, update: Shape) -> _Found:
    before, after = ({repr(each) for each in shape.get("enum") or ()} for shape in (original, update))
    if before == after:
        return []
    how = "EXTENDED" if after > before else "NARROWED" if after < before else "CHANGED"
    return [(f"ENUM_ARRAY_{how}", "enum")]


def _of_const(original: Shape, update: Shape) -> _Found:
    return [] if original.get("const") == update.get("const") else [("ENUM_ARRAY_CHANGED", "const")]


def _distinct(parts: Sequence[Shape]) -> list[Shape]:
    return list({each.identity: each for each in parts}.values())


def _matched(fitting: Sequence[Sequence[int]]) -> int:
    """Return the size of a maximum matching. `fitting`: for each part, the indexes of partners that fit."""
    taken: dict[int, int] = {}

    def place(part: int, seen: set[int]) -> bool:
        for index in fitting[part]:
            if index not in seen:
                seen.add(index)
                if index not in taken or place(taken[index], seen):
                    taken[index] = part
                    return True
        return False

    return sum(place(part, set()) for part in range(len(fitting)))


def _names(shape: Shape, keyword: str) -> frozenset[str]:
    value = shape.get(keyword)
    return frozenset(each for each in value if isinstance(each, str)) if isinstance(value, list) else frozenset()


def _has_default(shape: Shape, name: str) -> bool:
    found = shape.mapping("properties").get(name)
    return isinstance(found, dict) and "default" in found


def _is_open(shape: Shape, more: str, unevaluated: str) -> bool:
    if shape.get(more) is False or isinstance(shape.get(more), dict) or shape.mapping("patternProperties"):
        return False
    return shape.get(unevaluated) in (None, True, {})


def _schema_of_others(shape: Shape, name: str) -> Any:
    """Return the schema for a property without its own: by pattern, else that of additional ones; None: no schema."""
    for pattern, schema in shape.mapping("patternProperties").items():
        if _fits(pattern, name):
            return schema
    return _schema_of_more(shape, "additionalProperties", "unevaluatedProperties")


def _schema_of_other_items(shape: Shape) -> Any:
    return _schema_of_more(shape, _more_items(shape, shape), "unevaluatedItems")


def _schema_of_more(shape: Shape, more: str, unevaluated: str) -> Any:
    found = shape.get(more)
    if isinstance(found, dict):
        return found
    last = shape.get(unevaluated)
    return last if found is not False and isinstance(last, dict) and last else None


def _fits(pattern: str, name: str) -> bool:
    """Tell whether a name matches a pattern. Uses re2, whose time is linear, because clients send the patterns."""
    try:
        import re2

        return re2.search(pattern, name) is not None
    except (ImportError, ValueError, re.error):
        return False
    except Exception as error:  # re2's own, which is not exported by all of its versions
        if type(error).__module__.startswith("re2"):
            return False
        raise


def _dependencies(shape: Shape) -> dict[str, Any]:
    found = dict(shape.mapping("dependencies"))
    for keyword in ("dependentRequired", "dependentSchemas"):
        found |= shape.mapping(keyword)
    return found


def _set_or_none(value: Any) -> frozenset[str] | None:
    return frozenset(map(str, value)) if isinstance(value, list) else None


def _width(shape: Shape | None) -> int:
    """Rank how much additional content `shape` allows: 0 nothing, 1 what fits a schema, 2 anything."""
    if shape is None:
        return 2
    return {"false": 0, "empty": 2}.get(shape.kind, 1)


def _has_all_items(shape: Shape) -> bool:
    return shape.schema("items") is not None and "prefixItems" not in (
        shape.tree if isinstance(shape.tree, dict) else {}
    )


def _items(shape: Shape) -> list[Any]:
    found = shape.get("prefixItems", shape.get("items"))
    return found if isinstance(found, list) else []


def _more_items(original: Shape, update: Shape) -> str:
    """Return the keyword for items after the positional ones: `items` if a schema has `prefixItems`.

    Else `additionalItems`, as before draft 2020-12.
    """
    is_new = any("prefixItems" in each.tree for each in (original, update) if isinstance(each.tree, dict))
    return "items" if is_new else "additionalItems"
