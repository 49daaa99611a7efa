"""Rules of compatibility of Protobuf: what may differ between the schema of written data and that of its reader.

Fields are compared by their numbers. Types of fields may change within a group, whose members have one form on the wire.

Source: Confluent's page "Protobuf Serializer and Deserializer: compatibility rules", the classes in
`io.confluent.kafka.schemaregistry.protobuf.diff`, and "Updating A Message Type" in Protobuf's language guide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2 as pb

_Field = pb.FieldDescriptorProto

COMPATIBLE = frozenset(
    (
        "MESSAGE_ADDED", "MESSAGE_MOVED", "ENUM_ADDED", "ENUM_REMOVED", "ENUM_CONST_ADDED", "ENUM_CONST_CHANGED",
        "ENUM_CONST_REMOVED", "FIELD_ADDED", "FIELD_REMOVED", "FIELD_NAME_CHANGED", "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
        "ONEOF_ADDED", "ONEOF_REMOVED", "ONEOF_FIELD_ADDED", "ONEOF_FIELD_MOVED_TO_TOP_LEVEL",
    )
)  # fmt: skip
"""Differences that a reader can live with (`SchemaDiff.COMPATIBLE_CHANGES`)."""

WORDS = {
    "PACKAGE_CHANGED": "The package at '{path}' in the %s schema does not match the package in the %s schema",
    "MESSAGE_REMOVED": "The %s schema is missing a MESSAGE type at path '{path}' in the %s schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the %s schema does not match the %s schema",
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the %s schema does not match its kind in the %s schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the %s schema does not match its type in the %s schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the %s schema does not match its label in the %s schema"
    ),
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the %s schema is missing in the %s schema",
    "REQUIRED_FIELD_REMOVED": "The %s schema is missing a required field at path: '{path}' in the %s schema",
    "ONEOF_FIELD_REMOVED": (
        "The %s schema is missing a field that is present in an oneof at path '{path}' in the %s schema"
    ),
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the %s schema are outside a oneof in the %s schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the %s schema is outside of it in the %s schema"
    ),
}

_T = _Field
GROUPS: Mapping[int, str] = {
    **dict.fromkeys(
        (_T.TYPE_INT32, _T.TYPE_INT64, _T.TYPE_UINT32, _T.TYPE_UINT64, _T.TYPE_BOOL, _T.TYPE_ENUM), "number"
    ),
    **dict.fromkeys((_T.TYPE_SINT32, _T.TYPE_SINT64), "signed number"),
    **dict.fromkeys((_T.TYPE_FIXED32, _T.TYPE_SFIXED32), "fixed32"),
    **dict.fromkeys((_T.TYPE_FIXED64, _T.TYPE_SFIXED64), "fixed64"),
    _T.TYPE_FLOAT: "float",
    _T.TYPE_DOUBLE: "double",
    **dict.fromkeys((_T.TYPE_STRING, _T.TYPE_BYTES), "text"),
}
"""Types that may take each other's place (`FieldSchemaDiff.scalarKind`)."""


class Difference(NamedTuple):
    """Difference between two versions of a schema. `name`: kind of the difference. `path`: place in the schema."""

    name: str
    path: str

    def __str__(self) -> str:
        words = WORDS.get(self.name, "").format(path=self.path.replace("%", "%%"))
        return f'{{errorType:"{self.name}", description:"{words}"}}'


class Known(NamedTuple):
    """Message type that a schema may use.

    `origin`: the imported file that defines it; empty if the schema itself defines it.
    """

    message: Any
    package: str
    origin: str


Messages = Mapping[str, Known]
"""Messages by full name."""


def messages_of(file: Any, origin: str) -> Iterable[tuple[str, Known]]:
    """Yield the messages of a file by full name, nested messages included."""
    waiting = [(file.package, each) for each in file.message_type]
    while waiting:
        scope, message = waiting.pop()
        full = f"{scope}.{message.name}" if scope else message.name
        yield full, Known(message, file.package, origin)
        waiting += [(full, each) for each in message.nested_type]


def differences(original: Any, originals: Messages, update: Any, updates: Messages) -> list[Difference]:
    """Return the incompatible differences between `original`, the writer's schema, and `update`, the reader's."""
    found = _Comparison(originals, updates, original.syntax, update.syntax).files(original, update)
    return [each for each in dict.fromkeys(found) if each.name not in COMPATIBLE]


class _Comparison:
    def __init__(self, originals: Messages, updates: Messages, original_syntax: str, update_syntax: str) -> None:
        self._originals, self._updates = originals, updates
        self._syntax = original_syntax, update_syntax
        self._seen: dict[tuple[int, int], bool] = {}

    def files(self, original: Any, update: Any) -> list[Difference]:
        found = [] if original.package == update.package else [Difference("PACKAGE_CHANGED", "#/")]
        return found + self._types(original.message_type, update.message_type, "")

    def _types(self, before: Iterable[Any], after: Iterable[Any], scope: str) -> list[Difference]:
        """Compare message types by name. Enum types and their constants may change freely."""
        found = []
        old, new = ({each.name: each for each in some} for some in (before, after))
        for name in dict.fromkeys([*old, *new]):
            full = f"{scope}.{name}" if scope else name
            if name in old and old[name].options.map_entry:
                continue  # it is compared as the field that it is of
            if name not in new:
                found.append(Difference("MESSAGE_REMOVED", f"#/{full}"))
            elif name in old:
                found += self._messages(old[name], new[name], full)
        return found

    def _messages(self, original: Any, update: Any, path: str) -> list[Difference]:
        found = self._oneofs(original, update, path)
        before, after = ({each.number: each for each in message.field} for message in (original, update))
        gone = self._gone_oneofs(original, after)
        for number in sorted({*before, *after}):
            old, new = before.get(number), after.get(number)
            if old is None:
                if after[number].label == _Field.LABEL_REQUIRED:
                    found.append(Difference("REQUIRED_FIELD_ADDED", f"#/{path}/{number}"))
            elif new is None:
                found += _removed(original, old, gone, path)
            else:
                oneof = _oneof(update, new)
                place = f"#/{path}/{oneof}/{number}" if oneof else f"#/{path}/{number}"
                found += self._fields(old, new, place)
        return found + self._types(original.nested_type, update.nested_type, path)

    def _gone_oneofs(self, original: Any, after: Mapping[int, Any]) -> set[str]:
        """Return the names of oneofs that have lost all members and thus count as deleted."""
        members = _members(original)
        return {name for name, numbers in members.items() if not any(each in after for each in numbers)}

    def _oneofs(self, original: Any, update: Any, path: str) -> list[Difference]:
        """Return a difference for each oneof in `update` whose fields were not together before."""
        found = []
        groups = {number: name for name, numbers in _members(original).items() for number in numbers}
        numbers_before = {each.number for each in original.field}
        for name, numbers in _members(update).items():
            known = [each for each in numbers if each in numbers_before]
            alone = [each for each in known if each not in groups]
            if len({groups.get(each, each) for each in known}) > 1:
                change = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(alone) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                found.append(Difference(change, f"#/{path}/{name}"))
        return found

    def _fields(self, original: Any, update: Any, path: str, *, has_labels: bool = True) -> list[Difference]:
        old_map, new_map = self._entry(original, self._originals), self._entry(update, self._updates)
        if (old_map is None) != (new_map is None):
            return [Difference("FIELD_KIND_CHANGED", path)]
        if old_map is not None and new_map is not None:
            pairs = zip(old_map.field, new_map.field, strict=True)
            return [each for old, new in pairs for each in self._fields(old, new, path, has_labels=False)]
        old_group, new_group = GROUPS.get(original.type), GROUPS.get(update.type)
        if (old_group is None) != (new_group is None):
            return [Difference("FIELD_KIND_CHANGED", path)]
        if old_group is None:
            return self._named(original.type_name[1:], update.type_name[1:], path)
        if old_group != new_group:
            return [Difference("FIELD_SCALAR_KIND_CHANGED", path)]
        labels = _label(original, self._syntax[0]), _label(update, self._syntax[1])
        if has_labels and None not in labels and labels[0] != labels[1] and old_group != "text":
            return [Difference("FIELD_NUMERIC_LABEL_CHANGED", path)]
        return []

    def _named(self, before: str, after: str, path: str) -> list[Difference]:
        """Compare the message types `before` and `after` of a field; their packages may differ."""
        old, new = self._originals.get(before), self._updates.get(after)
        changed = [Difference("FIELD_NAMED_TYPE_CHANGED", path)]
        if old is None or new is None:
            return [] if before == after else changed
        local = before.removeprefix(f"{old.package}.")
        if local != after.removeprefix(f"{new.package}."):
            return changed
        if old.origin and old.origin == new.origin:
            return []
        pair = (id(old.message), id(new.message))
        if pair not in self._seen:
            self._seen[pair] = True  # a message that holds itself is compatible unless something else is wrong
            found = self._messages(old.message, new.message, local)
            self._seen[pair] = all(each.name in COMPATIBLE for each in found)
            if not self._seen[pair]:
                return [*found, *changed]
        return [] if self._seen[pair] else changed

    def _entry(self, field: Any, messages: Messages) -> Any:
        """Return the entry type of a map field; None if the field is no map."""
        known = messages.get(field.type_name[1:])
        return known.message if known is not None and known.message.options.map_entry else None


def _removed(original: Any, field: Any, gone: set[str], path: str) -> list[Difference]:
    oneof = _oneof(original, field)
    if oneof:
        return [] if oneof in gone else [Difference("ONEOF_FIELD_REMOVED", f"#/{path}/{oneof}/{field.number}")]
    if field.label == _Field.LABEL_REQUIRED:
        return [Difference("REQUIRED_FIELD_REMOVED", f"#/{path}/{field.number}")]
    return []


def _oneof(message: Any, field: Any) -> str:
    """Return the name of a field's oneof; empty if there is none. Synthetic oneofs of proto3 are ignored."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    name: str = message.oneof_decl[field.oneof_index].name
    return name


def _members(message: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for field in message.field:
        if name := _oneof(message, field):
            found.setdefault(name, []).append(field.number)
    return found


def _label(field: Any, syntax: str) -> int | None:
    """Return the declared label of a field; None if none is declared."""
    is_given = field.label != _Field.LABEL_OPTIONAL or syntax != "proto3" or field.proto3_optional
    label: int = field.label
    return label if is_given and not (field.HasField("oneof_index") and not field.proto3_optional) else None
