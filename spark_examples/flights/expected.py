"""What the Spark jobs must find, computed in plain Python from the same files.

    python expected.py          prints the first rows of the result

Nothing here knows of Kafka, Spark, windows or watermarks.
"""

from datetime import date
from itertools import islice
from typing import NamedTuple

from dataset import Row, flights, weather


class Delays(NamedTuple):
    flights: int
    departed: int
    delay_minutes: int | None
    mean_delay: float | None
    wind_speed: float | None
    visib: float | None


def delays(months: int = 12) -> dict[tuple[str, str], Delays]:
    """The result by hour ("2013-01-01T10:00:00Z") and airport, of the first so many months."""
    observed = {(row["time_hour"], row["origin"]): row for row in weather(months)}
    found: dict[tuple[str, str], list[Row]] = {}
    for row in flights(months):
        found.setdefault((str(row["time_hour"]), str(row["origin"])), []).append(row)
    return {key: Delays(*totals(rows), *_wind_and_view(observed.get(key, {}))) for key, rows in sorted(found.items())}


def flights_of_day(day: date) -> dict[str, tuple[int, int, int | None]]:
    """Flights, departures and minutes of delay by airport."""
    rows = [
        row for row in flights(day.month) if (row["year"], row["month"], row["day"]) == (day.year, day.month, day.day)
    ]
    origins = {str(row["origin"]) for row in rows}
    return {origin: totals([row for row in rows if row["origin"] == origin])[:3] for origin in origins}


def weather_rows(first: int, last: int) -> list[tuple[object, ...]]:
    return [(row["origin"], row["time_hour"], row["temp"]) for row in islice(weather(), first, last)]


def totals(rows: list[Row]) -> tuple[int, int, int | None, float | None]:
    """Flights, departures, minutes of delay and their mean; a flight that never left has no delay."""
    late = [int(row["dep_delay"]) for row in rows if row["dep_delay"] is not None]
    return len(rows), len(late), sum(late) if late else None, sum(late) / len(late) if late else None


def _wind_and_view(observation: Row) -> tuple[float | None, float | None]:
    return _number(observation.get("wind_speed")), _number(observation.get("visib"))


def _number(value: str | float | None) -> float | None:
    return None if value is None else float(value)


def main() -> None:
    print("hour origin", *Delays._fields)
    for (hour, origin), row in islice(delays().items(), 10):
        print(hour, origin, *row)


if __name__ == "__main__":
    main()
