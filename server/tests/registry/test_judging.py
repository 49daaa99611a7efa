"""Texts of schemas that clients send again and again: each is parsed once, within a bound of memory."""

from __future__ import annotations

import json

import pytest
import trio

from ottla.server.registry import judging
from ottla.server.registry.schemas import formats
from ottla.server.tests.registry.registry import MemoryRegistry

BYTES_MAX = 64 * 1024


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were parsed, with little room for what is kept."""
    texts: list[str] = []
    parse = formats.parse

    def noted(kind: str, text: str, *more: object) -> object:
        texts.append(text)
        return parse(kind, text, *more)

    monkeypatch.setattr(formats, "parse", noted)
    monkeypatch.setattr(judging, "KEPT_BYTES_MAX", BYTES_MAX)
    return texts


def enum(name: str, length: int) -> str:
    return json.dumps({"type": "enum", "name": name, "symbols": ["A"], "doc": "d" * length})


async def look_up(registry: MemoryRegistry, text: str) -> None:
    # No such subject, which is told when the text has been parsed.
    assert (await registry.ask("POST", "/subjects/s", {"schema": text}))[0] == 40401


async def test_requests_at_once_with_one_text_take_room_once(parsed: list[str]) -> None:
    registry, text, other = MemoryRegistry(), enum("One", BYTES_MAX // 20), enum("Other", 10)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(look_up, registry, text)
    await look_up(registry, other)
    parsed.clear()
    for each in (text, other):
        await look_up(registry, each)
    assert parsed == []


async def test_white_space_counts_as_what_is_kept(parsed: list[str]) -> None:
    registry, texts = MemoryRegistry(), [enum(f"E{number}", 10) + " " * (BYTES_MAX // 20) for number in range(30)]
    for each in texts:
        await look_up(registry, each)
    parsed.clear()
    for each in (texts[-1], texts[0]):
        await look_up(registry, each)
    assert parsed == [texts[0]]
