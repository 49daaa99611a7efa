"""Sequences of random requests that were once answered differently, in the shape `test_random_requests.py` shrank them to."""

import json
from pathlib import Path

from compat_tests.differential.conversation import Talk, newest, scenario
from compat_tests.differential.random_requests import Step, play

from ottla.wire.messages.api_versions import ApiVersionsRequest

FOLDER = Path(__file__).resolve().parents[1] / "regressions"
# Every step says its own version; the subject only stands for all of them.
SUBJECT = ApiVersionsRequest
VERSION = newest(SUBJECT)


def register(name: str, steps: list[Step]) -> None:
    def told(talk: Talk) -> None:
        play(talk, steps)

    told.__name__ = name
    scenario(SUBJECT, versions=str(VERSION))(told)


def file_of(name: str) -> Path:
    return FOLDER / f"{name}.json"


for kept in sorted(FOLDER.glob("*.json")):
    register(kept.stem, json.loads(kept.read_text()))
