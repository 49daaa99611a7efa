"""Two transcripts laid beside each other, field by field."""

import fnmatch
import json
import re
from typing import Any, NamedTuple

MISSING = "<missing>"


class Difference(NamedTuple):
    step: str  # the label of the answer, such as "main Produce"
    path: str  # within the answer: "topics[0].partitions[1].error_code"
    kafka: Any
    ottla: Any

    def __str__(self) -> str:
        return f"{self.step} {self.path}: Kafka {json.dumps(self.kafka)}, Ottla {json.dumps(self.ottla)}"


class Allowed(NamedTuple):
    """A difference that stays, and why. Patterns: a shell's for the scenario, a regular expression for the field's path."""

    scenario: str
    path: str
    reason: str
    ottla: Any = ...  # what Ottla answers there, if it has to be this

    def allows(self, scenario: str, difference: Difference) -> bool:
        return (
            fnmatch.fnmatchcase(scenario, self.scenario)
            and re.fullmatch(self.path, f"{difference.step} {difference.path}") is not None
            and (self.ottla is ... or self.ottla == difference.ottla)
        )


def differences(kafka: list[tuple[str, Any]], ottla: list[tuple[str, Any]]) -> list[Difference]:
    found: list[Difference] = []
    for index in range(max(len(kafka), len(ottla))):
        theirs = kafka[index] if index < len(kafka) else (MISSING, MISSING)
        ours = ottla[index] if index < len(ottla) else (MISSING, MISSING)
        if theirs[0] != ours[0]:
            found.append(Difference(f"step {index}", "", theirs[0], ours[0]))
            return found  # what follows answers other questions
        _compare(theirs[0], "", theirs[1], ours[1], found)
    return found


def _called(item: Any, path: str, index: int) -> Any:
    """Settings and served requests are called by their names: their places change with every release."""
    names = {"configs": "name", "api_keys": "api_key"}
    name = names.get(path.rpartition(".")[2])
    return item[name] if name is not None and isinstance(item, dict) else index


def _beside_each_other(kafka: list[Any], ottla: list[Any]) -> tuple[list[Any], list[Any]]:
    """What each serves under one key, in the order of the keys."""
    theirs, ours = ({each["api_key"]: each for each in served} for served in (kafka, ottla))
    keys = sorted(theirs | ours)
    return [theirs.get(key, MISSING) for key in keys], [ours.get(key, MISSING) for key in keys]


def _compare(step: str, path: str, kafka: Any, ottla: Any, found: list[Difference]) -> None:
    if isinstance(kafka, dict) and isinstance(ottla, dict):
        for name in [*kafka, *(each for each in ottla if each not in kafka)]:
            inner = f"{path}.{name}" if path else name
            _compare(step, inner, kafka.get(name, MISSING), ottla.get(name, MISSING), found)
    elif isinstance(kafka, list) and isinstance(ottla, list):
        if path.endswith("api_keys"):
            kafka, ottla = _beside_each_other(kafka, ottla)
        for index in range(max(len(kafka), len(ottla))):
            theirs = kafka[index] if index < len(kafka) else MISSING
            ours = ottla[index] if index < len(ottla) else MISSING
            _compare(step, f"{path}[{_called(theirs, path, index)}]", theirs, ours, found)
    elif kafka != ottla:
        found.append(Difference(step, path, kafka, ottla))
