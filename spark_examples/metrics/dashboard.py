"""Draws the minutes as a picture: the load of each host over time, red where a reading was nearly at its limit."""

from collections.abc import Mapping
from html import escape

from expected import BUSY_PERCENT, Key, Totals

CELL_WIDTH, CELL_HEIGHT, LEFT, TOP, TITLE_WIDTH = 44, 18, 72, 48, 340


def drawn(minutes: Mapping[Key, Totals]) -> str:
    """An SVG with a row for each host and a column for each minute; a cell has the mean load, and its maximum as a title."""
    loads = {(minute, host): totals for (minute, host, metric), totals in minutes.items() if metric == "cpu_percent"}
    times, hosts = sorted({minute for minute, _ in loads}), sorted({host for _, host in loads})
    width, height = max(TITLE_WIDTH, LEFT + CELL_WIDTH * len(times) + 12), TOP + CELL_HEIGHT * len(hosts) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="16" font-size="13">cpu_percent by minute; red: {BUSY_PERCENT} or more was read</text>',
    ]
    for column, minute in enumerate(times):
        x = LEFT + column * CELL_WIDTH
        parts.append(f'<text x="{x + 4}" y="{TOP - 6}">{escape(minute[11:16])}</text>')
    for row, host in enumerate(hosts):
        y = TOP + row * CELL_HEIGHT
        parts.append(f'<text x="8" y="{y + 13}">{escape(host)}</text>')
        for column, minute in enumerate(times):
            if (minute, host) in loads:
                parts.append(_cell(LEFT + column * CELL_WIDTH, y, loads[minute, host]))
    return "\n".join([*parts, "</svg>", ""])


def _cell(x: int, y: int, totals: Totals) -> str:
    mean = totals.sum // totals.count
    shade = 235 - mean * 17 // 10
    color = "#c0392b" if totals.max >= BUSY_PERCENT else f"rgb({shade},{shade + 10},235)"
    text = "white" if totals.max >= BUSY_PERCENT or mean > 60 else "black"
    return (
        f'<g><title>max {totals.max}, {totals.count} readings</title><rect x="{x}" y="{y}" width="{CELL_WIDTH - 2}" '
        f'height="{CELL_HEIGHT - 2}" fill="{color}"/><text x="{x + 12}" y="{y + 12}" fill="{text}">{mean}</text></g>'
    )
