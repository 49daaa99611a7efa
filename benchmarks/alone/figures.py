"""What a benchmark finds: one figure after the other, each with its limit or peer, its target and a verdict."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One row of the table. `ok` is None where there is no target, or nothing could be measured."""

    name: str
    measured: str
    peer: str = ""
    ratio: float | None = None
    target: str = ""
    ok: bool | None = None
    numbers: dict[str, float] = field(default_factory=dict)  # the raw medians, for the JSON file

    @property
    def verdict(self) -> str:
        if self.ok is None:
            return "" if self.measured != NOT_MEASURED else "-"
        return "ok" if self.ok else "BEHIND"


NOT_MEASURED = "not measured"

COLUMNS = ("figure", "Ottla", "limit or peer", "ratio", "target", "")
WIDTHS = (50, 26, 26, 7, 22, 6)


def not_measured(name: str, why: str) -> Figure:
    return Figure(name, NOT_MEASURED, peer=why)


def failed(name: str, error: Exception) -> Figure:
    return Figure(name, "failed", peer=str(error).partition("\n")[0], ok=False)


def at_least(name: str, measured: float, peer: float, share: float, unit: str, **numbers: float) -> Figure:
    """A rate that should reach this share of its peer's."""
    ratio = measured / peer
    values = {"measured": measured, "peer": peer, "ratio": ratio, **numbers}
    target = f"at least {share:.0%}"
    return Figure(name, f"{measured:,.0f} {unit}", f"{peer:,.0f} {unit}", ratio, target, ratio >= share, values)


def at_most(
    name: str, measured: float, limit: float, unit: str, digits: int = 2, peer: str = "", **numbers: float
) -> Figure:
    """A cost that should stay within a fixed limit."""
    ratio = measured / limit
    values = {"measured": measured, "limit": limit, "ratio": ratio, **numbers}
    shown, target = f"{measured:,.{digits}f} {unit}", f"at most {limit:g} {unit}"
    return Figure(name, shown, peer, ratio, target, measured <= limit, values)


def table_head() -> str:
    return f"{_line(COLUMNS)}\n{_line(['-' * width for width in WIDTHS])}"


def table_row(figure: Figure) -> str:
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    return _line((figure.name, figure.measured, figure.peer, ratio, figure.target, figure.verdict))


def write_json(path: Path, figures: Iterable[Figure], about: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"about": about, "figures": [asdict(figure) for figure in figures]}, indent=2) + "\n")


def _line(cells: Iterable[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
