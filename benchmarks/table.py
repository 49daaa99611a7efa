"""The lines as text: for the terminal while they come, and as Markdown for RESULTS.md."""

from collections.abc import Iterable, Sequence

from benchmarks.brokers import YARDSTICK, Ottla
from benchmarks.rows import Line, Metric, Spread

HEAD = ("row", "Ottla", YARDSTICK.name.split()[-1], "ratio", "min..max", "target", "")
WIDTHS = (100, 14, 14, 7, 14, 8, 6)


def head() -> str:
    return f"{_aligned(HEAD)}\n{_aligned('-' * width for width in WIDTHS)}"


def text(line: Line) -> str:
    cells = _aligned((name(line), *_cells(line)))
    notes = [f"{peer}: {_number(line, peer)}" for peer in _peers(line)]
    notes += [*line.beside, *[f"limit: {line.limit}"] * bool(line.limit)]
    notes += [f"{broker}: {why}" for broker, why in line.errors.items()]
    return "\n".join([cells, *(f"    {note}" for note in notes)])


def name(line: Line) -> str:
    return f"{line.name}: {line.metric.label}" if line.metric.label else line.name


def markdown(lines: Iterable[Line]) -> str:
    """A table for each group."""
    parts: list[str] = []
    group = ""
    for line in lines:
        if line.group != group:
            group = line.group
            parts += [
                f"\n## {group}\n",
                f"| row | Ottla | {HEAD[2]} | ratio | min..max | target | | beside | near which limit |",
            ]
            parts.append("|---|--:|--:|--:|:-:|:-:|---|---|---|")
        others = "; ".join(f"{peer} {_number(line, peer)}" for peer in _peers(line))
        failures = "; ".join(f"{broker} failed: {why}" for broker, why in line.errors.items())
        told = "; ".join(filter(None, (others, *line.beside, failures)))
        cells = (name(line), *_cells(line), told, line.limit)
        parts.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(parts) + "\n"


def summary(lines: Sequence[Line]) -> str:
    judged = [line for line in lines if line.metric.target is not None]
    behind = [line for line in judged if line.verdict == "BEHIND"]
    failed = [line for line in lines if line.errors]
    met = sum(line.verdict == "ok" for line in judged)
    return (
        f"{len(lines)} lines, {len(judged)} with a target: {met} ok, {len(behind)} behind; {len(failed)} with a failure"
    )


def _cells(line: Line) -> tuple[str, ...]:
    ratio, target = line.ratio, line.metric.target
    shown = (_ratio(ratio.median), f"{_ratio(ratio.least)}..{_ratio(ratio.greatest)}") if ratio else ("", "")
    return _number(line, Ottla.name), _number(line, YARDSTICK.name), *shown, str(target) if target else "", line.verdict


def _number(line: Line, broker: str) -> str:
    if numbers := line.numbers.get(broker):
        return with_unit(Spread.of(numbers).median, line.metric)
    return "failed" if broker in line.errors else ""


def with_unit(number: float, metric: Metric) -> str:
    return f"{number:,.{metric.digits}f} {metric.unit}"


def _ratio(number: float) -> str:
    return f"{number:.2f}" if number >= 0.1 else f"{number:.3f}"


def _peers(line: Line) -> list[str]:
    return [name for name in (*line.numbers, *line.errors) if name not in (Ottla.name, YARDSTICK.name)]


def _aligned(cells: Iterable[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
