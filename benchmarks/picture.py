"""The picture of a run: a row for each line, its ratio as "times better than Apache Kafka" on a logarithmic axis.

A dot is the median, the bar through it goes from the least to the greatest round, a tick marks the target. Right of the
axis at 1 Ottla is better. Drawn as plain SVG, without a library.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from benchmarks import table
from benchmarks.brokers import YARDSTICK
from benchmarks.rows import Line, Spread

WIDTH, LEFT, RIGHT, TOP, ROW = 1280, 680, 90, 56, 17
GRID = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
COLOURS = {"ok": "#1a7f37", "BEHIND": "#cf222e", "": "#57606a", "failed": "#9a6700"}


def draw(lines: Sequence[Line]) -> str:
    """An SVG document."""
    shown = [(line, spread) for line in lines if (spread := line.times_better) is not None and spread.least > 0]
    scale = Scale(shown)
    groups = list(dict.fromkeys(line.group for line, _ in shown))
    height = TOP + ROW * (len(shown) + len(groups)) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        label(
            LEFT, 18, f"times better than {YARDSTICK.name} (logarithmic); tick: target; bar: least to greatest", "start"
        ),
        *grid(scale, height),
        *rows(shown, scale),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class Scale:
    """From "times better" to a position, wide enough for all."""

    def __init__(self, shown: Iterable[tuple[Line, Spread]]) -> None:
        values = [0.5, 2.0]
        for line, spread in shown:
            values += [spread.least, spread.greatest, *filter(None, [target_of(line)])]
        self.least = max(min(values) / 1.15, 0.01)
        self.greatest = min(max(values) * 1.15, 1000.0)

    def __call__(self, times: float) -> float:
        share = math.log(times / self.least) / math.log(self.greatest / self.least)
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)


def target_of(line: Line) -> float | None:
    target = line.metric.target
    if target is None or target.unit:
        return None
    return target.bound if line.metric.more_is_better else 1 / target.bound


def grid(scale: Scale, height: int) -> Iterator[str]:
    for times in GRID:
        if scale.least <= times <= scale.greatest:
            x, stroke = scale(times), "#24292f" if times == 1 else "#d0d7de"
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 16}" y2="{height - 12}" stroke="{stroke}"/>'
            yield label(x, TOP - 20, f"{times:g}x", "middle")


def rows(shown: Sequence[tuple[Line, Spread]], scale: Scale) -> Iterator[str]:
    y, group = TOP - ROW / 2, ""
    for line, spread in shown:
        if line.group != group:
            group = line.group
            y += ROW
            yield label(10, y + 4, group, "start", weight="bold")
        y += ROW
        yield label(LEFT - 8, y + 4, f"{table.name(line)} ({line.metric.unit})", "end")
        yield from mark(line, spread, scale, y)


def mark(line: Line, spread: Spread, scale: Scale, y: float) -> Iterator[str]:
    colour = COLOURS[line.verdict]
    left, x, right = scale(spread.least), scale(spread.median), scale(spread.greatest)
    yield f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3" opacity="0.4"/>'
    yield f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{colour}"/>'
    if target := target_of(line):
        at = scale(target)
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y - 6}" y2="{y + 6}" stroke="#0969da" stroke-width="2"/>'
    yield label(WIDTH - 8, y + 4, f"{spread.median:.2f}x {line.verdict}", "end", fill=colour)


def label(x: float, y: float, content: str, anchor: str, weight: str = "normal", fill: str = "#24292f") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{fill}"'
    return f"<text {where}>{escape(content)}</text>"
