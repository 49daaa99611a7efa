"""Text formats of Prometheus (0.0.4) and OpenMetrics (1.0.0): families of samples, one after the other.

OpenMetrics differs in two things: `_total` of a counter belongs to its samples' names and not to its family's, and the text ends
with `# EOF`. All samples of a family stand together behind its head, and none comes twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

OPEN_METRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

COUNTER, GAUGE, SUMMARY, HISTOGRAM = "counter", "gauge", "summary", "histogram"
TOTAL = "_total"
MEDIA_TYPES_MAX, PARAMETERS_MAX = 50, 10

Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, float]]


class Family(NamedTuple):
    """Name, kind and help text of a metric family. The name of a counter ends with `_total`."""

    name: str
    kind: str
    help: str


class Exposition:
    """Writer of a metrics text format, either Prometheus or OpenMetrics."""

    def __init__(self, *, is_open_metrics: bool) -> None:
        self._is_open_metrics = is_open_metrics

    @property
    def content_type(self) -> str:
        return OPEN_METRICS_TYPE if self._is_open_metrics else PROMETHEUS_TYPE

    @property
    def end(self) -> str:
        """Text after the last family."""
        return "# EOF\n" if self._is_open_metrics else ""

    def head(self, family: Family) -> str:
        """Return the HELP and TYPE lines before the samples of a family."""
        name, kind, about = family
        assert kind != COUNTER or name.endswith(TOTAL), name
        if self._is_open_metrics:
            name = name.removesuffix(TOTAL)
        return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"

    def single(self, name: str, kind: str, about: str, value: float) -> str:
        """Return the lines of a family with one sample and no labels."""
        return f"{self.head(Family(name, kind, about))}{name} {value}\n"

    def family(self, family: Family, samples: Samples) -> str:
        """Return all lines of a metric family as one text; only for short families."""
        lines = [f"{family.name}{{{labelled(labels)}}} {value}\n" for labels, value in samples]
        return self.head(family) + "".join(lines)


def labelled(labels: Labels) -> str:
    """Format labels as text, without the braces."""
    return ",".join([f'{name}="{escaped(value)}"' for name, value in labels.items()])


def escaped(text: str) -> str:
    """Escape the value of a label. Clients choose some values, so lone surrogates are replaced, too."""
    text = text.encode("utf-8", "replace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def wanted(accept: str) -> Exposition:
    """Choose OpenMetrics if the Accept header prefers it, else Prometheus."""
    quality: dict[str, float] = {}
    for media_type, parameters in _accepted(accept):
        if media_type == "application/openmetrics-text" and parameters.get("version", "1.0.0") != "1.0.0":
            continue
        quality[media_type] = max(quality.get(media_type, 0.0), _quality(parameters.get("q", "1")))
    plain = max(quality.get(each, 0.0) for each in ("text/plain", "text/*"))
    return Exposition(is_open_metrics=quality.get("application/openmetrics-text", 0.0) > plain)


def _accepted(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    # No client names more, and some thousand would take long.
    for item in accept.lower().split(",", MEDIA_TYPES_MAX)[:MEDIA_TYPES_MAX]:
        media_type, *parameters = (part.strip() for part in item.split(";", PARAMETERS_MAX)[:PARAMETERS_MAX])
        pairs = (each.partition("=") for each in parameters)
        yield media_type, {name.strip(): value.strip().strip('"') for name, _, value in pairs}


def _quality(text: str) -> float:
    # As RFC 9110 has it: at most three decimals, and nothing that float() would take besides.
    whole, _, decimals = text.partition(".")
    is_number = (
        whole in ("0", "1") and len(decimals) <= 3 and (decimals == "" or (decimals.isascii() and decimals.isdigit()))
    )
    return min(float(text), 1.0) if is_number else 0.0
