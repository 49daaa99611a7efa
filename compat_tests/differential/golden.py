"""What Apache Kafka answered, kept in golden/<area>/<scenario>.txt: readable, diffable, and with the version that said it.

    # Apache Kafka 4.4.0, versions 2-4
    main ListOffsets: {"throttle_time_ms": 0, "topics": []}

Versions whose transcripts are equal share one block.
"""

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent / "golden"


class Told(NamedTuple):
    """One version's transcript, and who told it."""

    kafka: str
    steps: list[tuple[str, Any]]


def path_of(scenario_id: str) -> Path:
    return FOLDER / f"{scenario_id}.txt"


def write(scenario_id: str, told: dict[int, Told]) -> None:
    path = path_of(scenario_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = []
    for (kafka, lines), group in itertools.groupby(sorted(told), lambda version: _key(told[version])):
        versions = list(group)
        span = f"{versions[0]}-{versions[-1]}" if len(versions) > 1 else f"{versions[0]}"
        blocks.append("\n".join([f"# Apache Kafka {kafka}, versions {span}", *lines]))
    path.write_text("\n\n".join(blocks) + "\n")


def _key(told: Told) -> tuple[str, tuple[str, ...]]:
    return told.kafka, tuple(f"{label}: {json.dumps(data)}" for label, data in told.steps)


def read(scenario_id: str) -> dict[int, Told]:
    told: dict[int, Told] = {}
    for block in path_of(scenario_id).read_text().strip().split("\n\n"):
        head, *lines = block.split("\n")
        kafka, _, versions = head.removeprefix("# Apache Kafka ").partition(", versions ")
        first, _, last = versions.partition("-")
        for version in range(int(first), int(last or first) + 1):
            told[version] = Told(kafka, [_parse(line) for line in lines])
    return told


def _parse(line: str) -> tuple[str, Any]:
    label, _, data = line.partition(": ")
    return label, json.loads(data)
