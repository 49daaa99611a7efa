"""The decoding half of the generator.

The generated function reads `buffer[position:end]`, where bytes of other frames may follow `end`. It never reads
backwards, so it is enough that it looks at the position at the end, once in every turn of a loop, and before it copies
anything that is not small: once beyond `end`, always beyond `end`. Reading beyond the buffer itself raises IndexError
or struct.error, which means the same.

What makes it fast: all fixed fields up to the next length are one unpack into the attributes of the new object, that
length (or the empty section of tagged fields) included, on the guess that a varint has one byte; objects are made
without a call of their constructor; arrays of structs in which everything is fixed are one iter_unpack.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import calcsize

import construct

from ottla.wire.generator import Source, fixed_format, fixed_struct_format, parts_of, size_min
from ottla.wire.schema import holds_records
from ottla.wire.types import ArrayType, BytesType, NullableStruct, RecordsType, StringType, StructType, TaggedFields

BESIDE_RECORDS = "ELEMENTS_BESIDE_RECORDS_MAX"


def _budget(tree: StructType, kind: str) -> str | None:
    """Return the name of the limit on the number of elements; None if the size in bytes is limit enough.

    Responses have none: they answer a request for so many elements, such as all partitions of a follower.
    """
    if holds_records(tree.cls) and tree.cls.__name__.endswith("Request"):
        return BESIDE_RECORDS
    return "REQUEST_ELEMENTS_MAX" if kind == "decode_bounded" else None


def decoder_source(tree: StructType, kind: str, title: str) -> str:
    return _Decoder(tree, kind, title).source.text()


class _Decoder:
    def __init__(self, tree: StructType, kind: str, title: str) -> None:
        self.source = Source()
        self.line = self.source.line
        self.block = self.source.block
        self._run: list[tuple[str, str]] = []  # (format letter, target) that wait to be unpacked together
        self._title = title
        self._uses_view = False
        self._budget = _budget(tree, kind)
        with self.block(f"def {kind}(buffer, position, end):"):
            with self.block("try:"):
                before = self.source.mark()
                if self._budget is not None:
                    self.line(f"budget = {self._budget}")
                result = self._struct(tree, "")
                self._flush()
                if self._uses_view:
                    self.source.line_at(before, "view = memoryview(buffer)")
            with self.block("except (IndexError, error):"):
                self.line("position = end + 1")
            with self.block("if position > end:"):
                self._refuse("the end is missing")
            self.line(f"return {result}, position" if kind == "decode_prefix" else f"return {result}")

    def _refuse(self, reason: str) -> None:
        self.line(f"raise ProtocolViolation({f'{self._title}: {reason}'!r})")

    # -------------------------------------------------------------- runs of fixed size

    def _flush(self) -> None:
        """Generate code that unpacks the pending fields, which have fixed sizes."""
        if not self._run:
            return
        letters = "".join(letter for letter, _ in self._run)
        targets = ", ".join(target for _, target in self._run)
        # A single byte needs no call of unpack.
        if letters == "B":
            self.line(f"{targets} = buffer[position]")
        else:
            unpack = self.source.struct(letters, "unpack_from")
            self.line(f"{targets}{',' if len(self._run) == 1 else ''} = {unpack}(buffer, position)")
        self.line(f"position += {calcsize('>' + letters)}")
        self._run.clear()

    def _varint(self, hint: str, reader: str = "read_length", when_long: Callable[[str], None] | None = None) -> str:
        """Generate code that reads the pending fields and a varint, fast for one byte. Return its variable."""
        value = self.source.variable(hint)
        self._run.append(("B", value))
        self._flush()
        with self.block(f"if {value} > 127:"):
            # The byte that was read is only the first of the varint.
            self.line(f"{value}, position = {reader}(buffer, position - 1)")
            if when_long is not None:
                when_long(value)
        return value

    # -------------------------------------------------------------- one type each

    def _value(self, subcon: construct.Construct, target: str, path: str) -> None:
        """Generate code that reads a value into `target`, immediately or at the next `_flush`."""
        letter = fixed_format(subcon)
        if letter is not None:
            self._run.append((letter, target))
        elif isinstance(subcon, StructType):
            self._struct(subcon, path, f"{target} = ")
        elif isinstance(subcon, NullableStruct):
            self._nullable_struct(subcon, target, path)
        elif isinstance(subcon, ArrayType):
            self._array(subcon, target, path)
        else:
            self._sized(subcon, target, path)

    def _struct(self, subcon: StructType, path: str, targets: str = "") -> str:
        made = self.source.variable(subcon.cls.__name__.lower())
        self.line(f"{made} = {targets}new({subcon.cls.__name__})")
        parts = parts_of(subcon)
        self._defaults(subcon, made)
        for name, part in parts:
            if isinstance(part, TaggedFields):
                self._tagged_fields(part, made, path)
            else:
                self._value(part, f"{made}.{name}", f"{path}.{name}" if path else name)
        return made

    def _defaults(self, subcon: StructType, made: str) -> None:
        """Generate assignments of defaults to the fields that the version does not have, or may leave out."""
        on_wire = {name for name, _ in parts_of(subcon)}
        for name, field in subcon.cls.wire_fields.items():
            if name not in on_wire:
                self.line(f"{made}.{name} = {self.source.default(subcon.cls, name, field.initial())}")

    def _nullable_struct(self, subcon: NullableStruct, target: str, path: str) -> None:
        marker = self.source.variable("marker")
        self._run.append(("b", marker))
        self._flush()
        with self.block(f"if {marker} < 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self._struct(subcon.subcon, path, f"{target} = ")
            self._flush()

    def _sized(self, subcon: BytesType, target: str, path: str) -> None:
        is_string = isinstance(subcon, StringType)
        if subcon.compact:
            size = self._varint("size", "read_string_length" if is_string else "read_length")
            first_valid, stop = 1, f"position + {size} - 1"
        else:
            size = self.source.variable("size")
            self._run.append(("h" if is_string else "i", size))
            self._flush()
            first_valid, stop = 0, f"position + {size}"
        with self.block(f"if {size} < {first_valid}:"):
            if subcon.nullable:
                self.line(f"{target} = None")
            else:
                self._refuse(f"{path} is null")
        with self.block("else:"):
            self.line(f"stop = {stop}")
            if is_string:
                self.line(f'{target} = buffer[position:stop].decode("utf-8", JAVA_REPLACE)')
            else:
                with self.block("if stop > end:"):
                    self._refuse(f"{path} goes beyond the end")
                self._uses_view = True
                piece = "view[position:stop]"
                self.line(f"{target} = {piece if isinstance(subcon, RecordsType) else f'bytes({piece})'}")
            self.line("position = stop")

    # -------------------------------------------------------------- arrays

    def _array(self, subcon: ArrayType, target: str, path: str) -> None:
        count, bias = self._count(subcon, path)
        with self.block(f"if {count} < {bias}:"):
            if subcon.nullable:
                self.line(f"{target} = None")
            else:
                self._refuse(f"{path} is null")
        with self.block("else:"):
            self._spend(count, path)
            self._elements(subcon.item, count, bias, target, path)

    def _spend(self, count: str, path: str) -> None:
        """Generate a check of the total number of elements, unless the frame's size limits it well enough."""
        if self._budget is None:
            return
        self.line(f"budget -= {count}")
        with self.block("if budget < 0:"):
            self._refuse(f"too many elements, up to {path}")

    def _count(self, subcon: ArrayType, path: str) -> tuple[str, int]:
        """Generate code that reads the number of elements.

        Return its variable, and the number to subtract (1 if compact, else 0).
        """
        if not subcon.compact:
            count = self.source.variable("count")
            self._run.append(("i", count))
            self._flush()
            self._check_count(subcon, count, path)
            return count, 0
        # A count of one byte may lie: the loop ends as soon as its elements go beyond the end, if they take bytes.
        if size_min(subcon.item):
            return self._varint("count", when_long=lambda count: self._check_count(subcon, f"({count} - 1)", path)), 1
        count = self._varint("count")
        self._check_count(subcon, f"({count} - 1)", path)
        return count, 1

    def _check_count(self, subcon: ArrayType, count: str, path: str) -> None:
        # An element may take no bytes, but its number has to be bounded all the same.
        item_bytes = max(size_min(subcon.item), 1)
        with self.block(f"if {count} * {item_bytes} > end - position:"):
            self._refuse(f"{path} counts more elements than bytes are left")

    def _elements(self, item: construct.Construct, count: str, bias: int, target: str, path: str) -> None:
        letter = fixed_format(item)
        if letter is not None:
            self._fixed_elements(letter, count, bias, target)
            return
        array = self.source.variable("array")
        self.line(f"{array} = {target} = []")
        letters = fixed_struct_format(item)
        if letters is None:
            self._loop(item, count, bias, array, path)
            return
        self._stop(count, bias, calcsize(">" + letters))
        if not letters.endswith("B"):
            self._fixed_structs(item, letters, array)
            return
        # Only if no element has tagged fields are all of them of the same size.
        with self.block(f"if {count} > {bias + 1} and {self._tag_counts(letters)}.count(0) == {count} - {bias}:"):
            self._fixed_structs(item, letters, array)
        with self.block("else:"):
            self._loop(item, count, bias, array, path)

    def _stop(self, count: str, bias: int, size: int) -> None:
        self.line(f"stop = position + {count} * {size}{f' - {size}' if bias else ''}")

    @staticmethod
    def _tag_counts(letters: str) -> str:
        size = calcsize(">" + letters)
        return f"buffer[position + {size - 1}:stop:{size}]"

    def _fixed_elements(self, letter: str, count: str, bias: int, target: str) -> None:
        self._stop(count, bias, calcsize(">" + letter))
        if letter == "i":
            few = "UNPACK_INT32S_COMPACT" if bias else "UNPACK_INT32S"
            with self.block(f"if {count} < FEW:"):
                self.line(f"{target} = [*{few}[{count}](buffer, position)]")
            with self.block("else:"):
                self.line(f'{target} = [*unpack_from(f">{{{count} - {bias}}}i", buffer, position)]')
        else:
            unpack = self.source.struct(letter, "iter_unpack")
            self.line(f"{target} = [value for value, in {unpack}(buffer[position:stop])]")
        self.line("position = stop")

    def _fixed_structs(self, item: StructType, letters: str, array: str) -> None:
        unpack = self.source.struct(letters, "iter_unpack")
        with self.block(f"for row in {unpack}(buffer[position:stop]):"):
            made = self.source.variable(item.cls.__name__.lower())
            self.line(f"{made} = new({item.cls.__name__})")
            self.line(f"{array}.append({made})")
            targets = ["_" if isinstance(part, TaggedFields) else f"{made}.{name}" for name, part in parts_of(item)]
            self.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = row")
            self._defaults(item, made)
        self.line("position = stop")

    def _loop(self, item: construct.Construct, count: str, bias: int, array: str, path: str) -> None:
        with self.block(f"for _ in range({'1, ' if bias else ''}{count}):"):
            if isinstance(item, StructType):
                made = self._struct(item, path)
                self._flush()
                self.line(f"{array}.append({made})")
            else:
                self._value(item, "value", path)
                self.line(f"{array}.append(value)")
            with self.block("if position > end:"):
                self._refuse(f"the end of {path} is missing")

    # -------------------------------------------------------------- tagged fields

    def _tagged_fields(self, subcon: TaggedFields, made: str, path: str) -> None:
        count = self.source.variable("tags")
        self._run.append(("B", count))
        self._flush()
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > 127:"):  # the byte that was read is the first of a longer count
                self.line(f"{count}, position = read_tag_count(buffer, position - 1)")
            self._spend(count, path or "its tagged fields")
            if not subcon.known and not subcon.foreign:
                self.line(f"position = skip_tags(buffer, position, end, {count})")
                return
            with self.block(f"for _ in range({count}):"):
                self._tagged_field(subcon, made, path)

    def _tagged_field(self, subcon: TaggedFields, made: str, path: str) -> None:
        tag, size = self._varint("tag", "read_varint"), self._varint("size", "read_varint")
        keyword = "if"
        for known, (name, part, _default) in sorted(subcon.known.items()):
            with self.block(f"{keyword} {tag} == {known}:"):
                self._value(part, f"{made}.{name}", f"{path}.{name}" if path else name)
                self._flush()
            keyword = "elif"
        for foreign in sorted(subcon.foreign):
            with self.block(f"{keyword} {tag} == {foreign}:"):
                self._refuse(f"{path or 'it'} has tag {foreign}, which belongs to another version")
            keyword = "elif"
        with self.block("else:"):
            self.line(f"position = skip_tagged_field(position, end, {size})")
        with self.block("if position > end:"):
            self._refuse(f"the end of {path or 'it'} is missing")
