"""Sequences of random requests that were once answered differently, in the shape `test_random_requests.py` shrank them to."""

import json
from pathlib import Path

from compat_tests.differential.conversation import Talk, scenario
from compat_tests.differential.random_world import Step, play

from ottla.wire.messages.api_versions import ApiVersionsRequest

FOLDER = Path(__file__).resolve().parents[1] / "regressions"
# Every step says its own version; the subject only stands for all of them.
SUBJECT = ApiVersionsRequest
VERSION = SUBJECT.versions.first
# With these a change of a group is assigned with the next heartbeat.
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}


def register(name: str, steps: list[Step]) -> None:
    def told(talk: Talk) -> None:
        play(talk, steps)

    told.__name__ = name
    scenario(SUBJECT, versions=str(VERSION), settings=SETTINGS)(told)


def file_of(name: str) -> Path:
    return FOLDER / f"{name}.json"


for kept in sorted(FOLDER.glob("*.json")):
    register(kept.stem, json.loads(kept.read_text()))
