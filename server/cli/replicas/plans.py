"""Plans of reassignments: from the command line as TOPIC:N=ID,ID, or in the files of kafka-reassign-partitions.sh"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.server.cli.client.output import UsageError, ids
from ottla.server.cli.command_line import is_number
from ottla.server.cli.on_cluster import read_input

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Partition

PLAN_BYTES_MAX = 64 << 20
Targets = dict["Partition", tuple[int, ...]]
"""Replicas that partitions are to have. The first one is the preferred leader."""


def add_moves(parser: argparse.ArgumentParser) -> None:
    """Add the moves, as words or as --plan, to an action of `ottla reassign`."""
    one = "the replicas of one partition, the preferred leader first"
    parser.add_argument("moves", nargs="*", metavar="TOPIC:N=ID,ID", help=one)
    parser.add_argument("--plan", metavar="FILE", help="a plan; - is stdin")


def read_targets(options: argparse.Namespace) -> Targets:
    """Read the moves of the command line, or the plan. Raises UsageError."""
    if bool(options.moves) is (options.plan is not None):
        raise UsageError("which partitions? Give TOPIC:N=ID,ID, or --plan FILE")
    pairs = [_move(each) for each in options.moves] if options.moves else parse_plan(_text(options.plan), options.plan)
    targets: Targets = {}
    for place, replicas in pairs:
        if place in targets:
            raise UsageError(f"{place[0]}-{place[1]} is named twice")
        if len(set(replicas)) < len(replicas):
            raise UsageError(f"{place[0]}-{place[1]} is to have two replicas on one broker: {ids(replicas)}")
        targets[place] = replicas
    return targets


def _move(text: str) -> tuple[Partition, tuple[int, ...]]:
    place, _, replicas = text.rpartition("=")
    topic, _, number = place.rpartition(":")
    parts = replicas.split(",")
    if not topic or not is_number(number) or not all(is_number(each) for each in parts):
        raise UsageError(f"{text}: must be TOPIC:N=ID,ID")
    return (topic, int(number)), tuple(map(int, parts))


def _text(file: str) -> str:
    data = read_input("--plan", file, PLAN_BYTES_MAX + 1)
    if len(data) > PLAN_BYTES_MAX:
        raise UsageError(f"--plan {file}: is longer than {PLAN_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"--plan {file}: is not UTF-8") from None


def parse_plan(text: str, name: str) -> list[tuple[Partition, tuple[int, ...]]]:
    """Parse a plan of kafka-reassign-partitions.sh; `name` is that of its file. Raises UsageError."""
    try:
        plan = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"--plan {name}: is no JSON") from None
    if not isinstance(plan, dict) or plan.get("version") != 1 or not isinstance(plan.get("partitions"), list):
        raise UsageError(f'--plan {name}: must be {{"version": 1, "partitions": [...]}}')
    return [_planned(each, name) for each in plan["partitions"]]


def _planned(entry: Any, name: str) -> tuple[Partition, tuple[int, ...]]:
    match entry:
        case {"topic": str(topic), "partition": int(number), "replicas": [*replicas]} if replicas and all(
            type(each) is int and 0 <= each < 1 << 31 for each in (number, *replicas)
        ):
            pass
        case _:
            told = json.dumps(entry)[:100]
            raise UsageError(f'--plan {name}: {told} must be {{"topic": ..., "partition": N, "replicas": [ID, ...]}}')
    # Kafka's tool moves replicas between directories of a broker, too, by another request.
    directories = entry.get("log_dirs", [])
    if not isinstance(directories, list) or any(each != "any" for each in directories):
        raise UsageError(f"--plan {name}: has log_dirs other than any, to which `ottla dirs move` moves replicas")
    return (topic, number), tuple(replicas)


def as_plan(targets: Mapping[Partition, Sequence[int]]) -> dict[str, Any]:
    """Return a plan that `parse_plan` reads."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in sorted(targets.items())
    ]
    return {"version": 1, "partitions": partitions}
