"""What a run leaves: RESULTS.md with its picture beside it after a whole run, and the numbers of any run as JSON in .cache."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import table
from benchmarks.brokers import AGAINST, MAIN, PEERS, librdkafka_version
from benchmarks.clusters import KINDS
from benchmarks.machine import about_this_machine
from benchmarks.picture import draw
from benchmarks.rows import Line

HERE = Path(__file__).resolve().parent
RESULTS, PICTURE = HERE / "RESULTS.md", HERE / "results.svg"
JSON = HERE.parent / ".cache" / "benchmarks" / "results.json"

APART = ("date", "machine", "system", "python", "load average before")
"""What is told of groups that were measured apart."""

EXPLANATION = """\
Written by `make bench`; see [README.md](README.md) for what is measured and how.

Numbers are medians; the ratio is Ottla / Apache Kafka of the same round, its median, and from the least to the greatest.
For MB/s a greater ratio is better, for everything else a smaller one. `s/GB` is processor time of the broker's process
(user and system) per 10^9 bytes of record values. The limit is what a C program reaches that does only what no broker
can leave out, with a client that costs next to nothing.

Consumers and Java's producer are the limit themselves: they take most of the processors that they share with the broker. Their rows
are judged by what the broker can do: MB/s at least 0.98 of Kafka's, and at most 0.6 of its processor time per gigabyte.

![times better than Apache Kafka](results.svg)
"""


def about() -> dict[str, str]:
    """The machine, the date and the versions."""
    versions = {kind.name: kind.missing() or kind.version() for kind in (*MAIN, *PEERS)}
    other = KINDS[1]
    cluster = {f"{other.name} of three brokers": other.missing() or other.version()}
    return {**about_this_machine(), **versions, **cluster, "librdkafka": librdkafka_version()}


def write(lines: Sequence[Line], about: Mapping[str, str], whole: bool) -> None:
    """RESULTS.md and the picture are made by whole runs only: a part must not pass for all (see `keep`)."""
    JSON.parent.mkdir(parents=True, exist_ok=True)
    JSON.write_text(json.dumps({"about": about, "lines": [as_json(line) for line in lines]}, indent=1) + "\n")
    (JSON.parent / "last.md").write_text(markdown(lines, about))
    (JSON.parent / "results.svg").write_text(draw(lines))
    if whole and not AGAINST:
        RESULTS.write_text(markdown(lines, about))
        PICTURE.write_text(draw(lines))


def keep(lines: Sequence[Line], about: Mapping[str, str]) -> None:
    """Put each group of these lines into RESULTS.md, in place of what stands there; each says when it was measured.

    The numbers of the head and the picture go on being those of the last whole run.
    """
    head, *sections = re.split("^(?=## )", RESULTS.read_text(), flags=re.MULTILINE)
    kept = {section.splitlines()[0]: section.rstrip() for section in sections}
    when = f"Measured after the other groups: {', '.join(f'{name}: {about[name]}' for name in APART if name in about)}."
    for group in dict.fromkeys(line.group for line in lines):
        title, _, rows = table.markdown([line for line in lines if line.group == group]).strip().partition("\n\n")
        kept[title] = f"{title}\n\n{when}\n\n{rows}"
    RESULTS.write_text(head + "\n\n".join(kept.values()) + "\n")


def markdown(lines: Sequence[Line], about: Mapping[str, str]) -> str:
    facts = "\n".join(f"- {name}: {value}" for name, value in about.items())
    return f"# Results\n\n{EXPLANATION}\n{facts}\n\n{table.summary(lines)}.\n{table.markdown(lines)}"


def as_json(line: Line) -> dict[str, object]:
    ratio = line.ratio
    return {
        "group": line.group,
        "row": table.name(line),
        "unit": line.metric.unit,
        "numbers": {name: list(values) for name, values in line.numbers.items()},
        "ratio": None if ratio is None else [ratio.median, ratio.least, ratio.greatest],
        "target": str(line.metric.target) if line.metric.target else None,
        "verdict": line.verdict,
        "limit": line.limit,
        "beside": list(line.beside),
        "errors": dict(line.errors),
    }
