"""Finds keys and values with Confluent's framing in a page of records, and puts text in the place of their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from ottla.server.console.avro.nodes import TEXT_MAX, AvroProblem, Data
from ottla.server.console.avro.registry import Known, Registry
from ottla.server.console.cells import Buffer, cell
from ottla.wire.threads import paced

MAGIC, FRAME_BYTES = 0, 5
VALUE_BYTES_MAX, PAGE_BYTES_MAX, PAGE_TEXT_MAX = 64 * 1024, 1024 * 1024, 1024 * 1024

_threads = trio.CapacityLimiter(1)


class Framed:
    """The framed values of one page: the cells that show them, and their bytes. Filled in a thread."""

    def __init__(self, cut: int) -> None:
        self._cut = cut
        self._found: list[tuple[dict[str, Any], int, bytes]] = []
        self._bytes = 0

    def note(self, shown: dict[str, Any] | None, value: Buffer | None) -> None:
        """`shown`: the cell of a key or a value. Keeps the value if it is framed, and there is room."""
        if shown is None or value is None or len(value) < FRAME_BYTES or value[0] != MAGIC:
            return
        schema_id = int.from_bytes(value[1:FRAME_BYTES], "big", signed=True)
        if schema_id < 0:
            return
        if len(value) > VALUE_BYTES_MAX or self._bytes + len(value) > PAGE_BYTES_MAX:
            shown["hint"] = f"It may be of schema {schema_id}, but is too long to be decoded here."
            return
        self._bytes += len(value)
        self._found.append((shown, schema_id, bytes(value[FRAME_BYTES:])))

    async def decode(self, registry: Registry) -> None:
        """Ask for the schemas, and change the cells."""
        if self._found:
            known = await registry.schemas(schema_id for _, schema_id, _ in self._found)
            await trio.to_thread.run_sync(self._take, known, limiter=_threads)

    def _take(self, known: Mapping[int, Known]) -> None:
        give_way, left = paced(), PAGE_TEXT_MAX
        for shown, schema_id, data in self._found:
            give_way()
            # What cannot be read has taken as much as what can.
            left -= self._show(shown, schema_id, Data(data, give_way, min(left, TEXT_MAX)), known[schema_id])

    def _show(self, shown: dict[str, Any], schema_id: int, data: Data, known: Known) -> int:
        """How much was made, in characters."""
        if known.problem:
            shown["hint"] = f"It may be of schema {schema_id}: {known.problem}."
            return 0
        if known.schema is None:
            shown |= cell(data.rest, self._cut) or {}
            shown["schema"] = {"id": schema_id, "name": "JSON"}
            return len(shown["text"])
        try:
            text = known.schema.decode(data)
        except AvroProblem as problem:
            shown["hint"] = f"It may be of schema {schema_id}, but cannot be decoded, because {problem}."
            return data.spent
        shown |= {"form": "json", "text": text[: self._cut], "isCut": len(text) > self._cut}
        shown["schema"] = {"id": schema_id, "name": known.schema.name[:200]}
        return data.spent
