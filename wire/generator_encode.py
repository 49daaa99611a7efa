"""The encoding half of the generator.

The generated function collects pieces in `parts`: one pack for all fixed fields up to the next length, that length
included on the guess that a varint has one byte, then the bytes themselves. At the end, and before and after records,
which may be large or not in memory at all, the pieces are joined and handed to `append`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from struct import calcsize

import construct

from ottla.wire.generator import Source, fixed_format, parts_of
from ottla.wire.runtime import encode_varint
from ottla.wire.types import (
    ArrayType,
    BytesType,
    NullableStruct,
    RecordsType,
    StringType,
    StructType,
    TaggedFields,
    TextType,
)


def encoder_source(tree: StructType) -> str:
    return _Encoder(tree).source.text()


class _Encoder:
    def __init__(self, tree: StructType) -> None:
        self.source = Source()
        self.line = self.source.line
        self.block = self.source.block
        self._run: list[tuple[str, str]] = []  # (format letter, expression) that wait to be packed together
        self._write = "write"
        with self.block("def encode(object, append):"):
            self.line("parts = []")
            self.line("write = parts.append")
            self._struct(tree, "object")
            self._flush()
            self.line('append(b"".join(parts))')

    # -------------------------------------------------------------- runs of fixed size

    def _packed(self, extra: str = "", value: str = "") -> str:
        """Return an expression that packs the pending fields, then `value` with format `extra` ("x": a zero byte)."""
        letters = "".join(letter for letter, _ in self._run) + extra
        arguments = [expression for letter, expression in self._run if letter != "x"]
        if value:
            arguments.append(value)
        if not arguments:
            return repr(bytes(len(letters)))
        if letters == "B":
            return f"BYTES[{arguments[0]}]"
        return f"{self.source.struct(letters, 'pack')}({', '.join(arguments)})"

    def _flush(self) -> None:
        """Generate code that packs the pending fields, which have fixed sizes."""
        if self._run:
            self.line(f"{self._write}({self._packed()})")
            self._run.clear()

    def _flush_with_varint(self, value: str, encoder: str = "encode_varint") -> None:
        with self.block(f"if {value} < 128:"):
            self.line(f"{self._write}({self._packed('B', value)})")
        with self.block("else:"):
            if self._run:
                self.line(f"{self._write}({self._packed()})")
            self.line(f"{self._write}({encoder}({value}))")
        self._run.clear()

    # -------------------------------------------------------------- one type each

    def _value(self, subcon: construct.Construct, expression: str) -> None:
        letter = fixed_format(subcon)
        if letter is not None:
            self._run.append((letter, expression))
        elif isinstance(subcon, StructType):
            self._struct(subcon, self._named(expression, "struct"))
        elif isinstance(subcon, NullableStruct):
            self._nullable_struct(subcon, self._named(expression, "struct"))
        elif isinstance(subcon, ArrayType):
            self._array(subcon, self._named(expression, "array"))
        else:
            self._sized(subcon, self._named(expression, "data"))

    def _named(self, expression: str, hint: str) -> str:
        name = self.source.variable(hint)
        self.line(f"{name} = {expression}")
        return name

    def _struct(self, subcon: StructType, value: str) -> None:
        for name, part in parts_of(subcon):
            if isinstance(part, TaggedFields):
                self._tagged_fields(subcon, part, value)
            else:
                self._value(part, f"{value}.{name}")

    def _nullable_struct(self, subcon: NullableStruct, value: str) -> None:
        self._flush()
        with self.block(f"if {value} is None:"):
            self.line(f'{self._write}(b"\\xff")')
        with self.block("else:"):
            self._run.append(("b", "1"))
            self._struct(subcon.subcon, value)
            self._flush()

    def _sized(self, subcon: BytesType, data: str) -> None:
        is_string = isinstance(subcon, StringType)
        size = self.source.variable("size")
        null, bias = ("0", " + 1") if subcon.compact else ("-1", "")
        with self._unless_null(subcon.nullable, data, f"{size} = {null}"):
            if is_string:
                self.line(
                    f"{data} = text_bytes({data})" if isinstance(subcon, TextType) else f"{data} = {data}.encode()"
                )
            self.line(f"{size} = len({data}){bias}")
        if subcon.compact:
            self._flush_with_varint(size, "encode_string_length" if is_string else "encode_varint")
        else:
            self._run.append(("h" if is_string else "i", size))
            self._flush()
        if isinstance(subcon, RecordsType):
            with self.block(f"if {size} > {1 if subcon.compact else 0}:"):
                self._pass_on(data)
        elif subcon.nullable:
            with self.block(f"if {data}:"):
                self.line(f"{self._write}({data})")
        else:
            self.line(f"{self._write}({data})")

    def _pass_on(self, data: str) -> None:
        # Records go straight to `append`. The payload of a tagged field is collected apart, so they would come out
        # before it.
        assert self._write == "write", "records within a tagged field"
        self.line('append(b"".join(parts))')
        self.line("parts.clear()")
        self.line(f"append({data})")

    def _unless_null(self, nullable: bool, value: str, when_null: str) -> AbstractContextManager[None]:
        if not nullable:
            return nullcontext()
        with self.block(f"if {value} is None:"):
            self.line(when_null)
        return self.block("else:")

    # -------------------------------------------------------------- arrays

    def _array(self, subcon: ArrayType, array: str) -> None:
        count = self.source.variable("count")
        null, bias = ("0", " + 1") if subcon.compact else ("-1", "")
        length = f"len({array}){bias}"
        self.line(f"{count} = {null} if {array} is None else {length}" if subcon.nullable else f"{count} = {length}")
        if subcon.compact:
            self._flush_with_varint(count)
        else:
            self._run.append(("i", count))
            self._flush()
        letter = fixed_format(subcon.item)
        if letter is None:
            self._loop(subcon.item, f"{array} or ()" if subcon.nullable else array)
        else:
            with self.block(f"if {array}:"):
                self._fixed_elements(letter, array)

    def _loop(self, item: construct.Construct, elements: str) -> None:
        element = self.source.variable("item")
        with self.block(f"for {element} in {elements}:"):
            if isinstance(item, StructType):
                self._struct(item, element)
            else:
                self._value(item, element)
            self._flush()

    def _fixed_elements(self, letter: str, array: str) -> None:
        if letter == "i":
            with self.block(f"if len({array}) < FEW:"):
                self.line(f"{self._write}(PACK_INT32S[len({array})](*{array}))")
            with self.block("else:"):
                self.line(f'{self._write}(pack(f">{{len({array})}}i", *{array}))')
        else:
            pack = self.source.struct(letter, "pack")
            self.line(f'{self._write}(b"".join([{pack}(value) for value in {array}]))')

    # -------------------------------------------------------------- tagged fields

    def _tagged_fields(self, struct: StructType, subcon: TaggedFields, value: str) -> None:
        if not subcon.known:
            self._run.append(("x", ""))
            return
        present = []
        for tag, (name, part, default) in sorted(subcon.known.items()):
            tagged = self._named(f"{value}.{name}", "tagged")
            present.append((tag, part, tagged, self._differs(struct, name, default, tagged)))
        conditions = [condition for _, _, _, condition in present]
        with self.block(f"if {' or '.join(conditions)}:"):
            self.line(f"{self._write}({self._packed()})" if self._run else "pass")
            # Each of the two branches writes what waits, so the tagged fields begin with nothing waiting.
            run, self._run = self._run, []
            assert len(conditions) < 0x80, "a count of one byte"
            self.line(f"{self._write}(BYTES[{' + '.join(f'({condition})' for condition in conditions)}])")
            for tag, part, tagged, condition in present:
                with self.block(f"if {condition}:"):
                    self._tagged_field(tag, part, tagged)
            self._run = run
        with self.block("else:"):
            self.line(f"{self._write}({self._packed('x')})")
        self._run = []

    def _differs(self, struct: StructType, name: str, default: object, value: str) -> str:
        """Return the condition in Python that a field's value differs from its default."""
        if default is None:
            return f"{value} is not None"
        expression = self.source.default(struct.cls, name, default)
        if expression.isidentifier() and expression not in ("True", "False"):
            return f"({value} is not {expression} and {value} != {expression})"
        return f"{value} != {expression}"

    def _tagged_field(self, tag: int, part: construct.Construct, value: str) -> None:
        letter = fixed_format(part)
        if letter is not None:
            self.line(f"{self._write}({encode_varint(tag) + encode_varint(calcsize('>' + letter))!r})")
            self._value(part, value)
            self._flush()
            return
        outer, payload = self._write, self.source.variable("payload")
        self.line(f"{payload} = []")
        self._write = f"{payload}.append"
        self._value(part, value)
        self._flush()
        self._write = outer
        self.line(f'{payload} = b"".join({payload})')
        self.line(f"{outer}({encode_varint(tag)!r} + encode_varint(len({payload})))")
        self.line(f"{outer}({payload})")
