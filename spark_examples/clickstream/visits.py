"""Visits of users, by state of one's own: what `transformWithState` keeps of each user, and the timers that end a visit.

Session windows find the same visits (`by_windows`). They are shorter to write, and all that Spark 3.5 has beside
`applyInPandasWithState`; state can do what windows cannot: look at each click when it comes, here to keep the pages in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

try:
    from pyspark.sql.streaming import StatefulProcessor
except ImportError:  # before Spark 4.0
    StatefulProcessor = object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessorHandle

GAP_MS = 30_000
LATENESS = "5 minutes"
TIME = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
HAS_STATE = StatefulProcessor is not object

CLICK = "id STRING, page STRING, source STRING, ms LONG"
VISIT = "user STRING, first LONG, last LONG, clicks LONG, source STRING, pages STRING"


def by_state(clicks: DataFrame) -> DataFrame:
    """Visits by `transformWithStateInPandas`."""
    found = (
        # Times in ms: pandas' own ones have no zone, and a worker may be in any.
        clicks.withColumn("ms", f.unix_millis("time"))
        .withWatermark("time", LATENESS)
        .groupBy("user")
        .transformWithStateInPandas(Visits(), VISIT, outputMode="append", timeMode="eventTime")
    )
    return shown(found.withColumns({name: f.timestamp_millis(name) for name in ("first", "last")}))


def by_windows(clicks: DataFrame) -> DataFrame:
    """Visits by session windows, without their pages. A window is given out when the watermark has passed its end."""
    found = (
        clicks.withWatermark("time", LATENESS)
        .dropDuplicatesWithinWatermark(["id"])
        .groupBy(f.session_window("time", f"{GAP_MS // 1000} seconds"), "user")
        .agg(
            f.min("time").alias("first"),
            f.max("time").alias("last"),
            f.count("*").alias("clicks"),
            f.min_by("source", f.struct("time", "id")).alias("source"),
        )
        .select("user", "first", "last", "clicks", "source", f.lit(None).cast("string").alias("pages"))
    )
    return shown(found)


def shown(found: DataFrame) -> DataFrame:
    return found.withColumns({name: f.date_format(name, TIME) for name in ("first", "last")})


class Visits(StatefulProcessor):  # type: ignore[misc]
    """Clicks of one user that belong to no visit yet that is over.

    The last of the clicks that come together sets a timer for the moment at which a visit that ends with it is over. When the watermark
    passes that moment no click can come before it any more: Spark drops what is later than the watermark.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._clicks = handle.getListState("clicks", CLICK)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        known = self._known()
        for some in rows:
            for click in some[["id", "page", "source", "ms"]].itertuples(index=False, name=None):
                # A doubled one comes again while its first copy is here: it is not later than the watermark either.
                known.setdefault(click[0], click)
        self._keep(known)
        # Each timer costs a call of this worker: one for all clicks of a batch is enough.
        self._handle.registerTimer(max(int(click[3]) for click in known.values()) + GAP_MS)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Give out the visits that are over, and keep the other clicks."""
        import pandas as pd

        watermark = timerValues.getCurrentWatermarkInMs()
        open_clicks, over = [], []
        for visit in cut(sorted(self._known().values(), key=lambda click: (click[3], click[0]))):
            if visit[-1][3] + GAP_MS <= watermark:
                pages = " ".join(click[1] for click in visit)
                over.append((key[0], visit[0][3], visit[-1][3], len(visit), visit[0][2], pages))
            else:
                open_clicks += visit
        self._keep({click[0]: click for click in open_clicks})
        yield pd.DataFrame(over, columns=["user", "first", "last", "clicks", "source", "pages"])

    def close(self) -> None:
        """Nothing is open."""

    def _known(self) -> dict[str, tuple[Any, ...]]:
        return {click[0]: tuple(click) for click in self._clicks.get()} if self._clicks.exists() else {}

    def _keep(self, clicks: dict[str, tuple[Any, ...]]) -> None:
        if clicks:
            self._clicks.put(list(clicks.values()))
        else:
            self._clicks.clear()


def cut(clicks: list[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Cut clicks, in order, where a pause is longer than the gap."""
    visit: list[tuple[Any, ...]] = []
    for click in clicks:
        if visit and click[3] - visit[-1][3] > GAP_MS:
            yield visit
            visit = []
        visit.append(click)
    if visit:
        yield visit
