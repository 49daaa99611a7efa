"""Writing the batches of a query exactly once, although `foreachBatch` may bring a batch twice: to a Delta table, or to files.

A batch that was cut off comes again under its number, with the same rows. Delta is told the number (`txnVersion`) and who counts
(`txnAppId`), in the same commit as the rows, and passes over what it has. Files are written to a folder named by the number.
"""

import json
import shutil
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

DELTA, FILES = "delta", "files"


def to_delta(batch: DataFrame, number: int, folder: Path, app: str) -> None:
    """Append a batch to a table, unless the table has it from this app."""
    writer = batch.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", number)
    writer.save(str(folder))


def to_files(batch: DataFrame, number: int, folder: Path) -> None:
    """Write a batch to a folder of its own, which appears when it is whole."""
    partial, whole = folder / f".batch-{number}", folder / f"batch-{number}"
    batch.write.mode("overwrite").json(str(partial))
    shutil.rmtree(whole, ignore_errors=True)
    partial.rename(whole)


def write(rows: DataFrame, sink: str, folder: Path, checkpoint: Path) -> StreamingQuery:
    """Start a query that takes what is there and ends."""

    def write_batch(batch: DataFrame, number: int) -> None:
        if sink == FILES:
            return to_files(batch, number, folder)
        # The id is the checkpoint's: with a new checkpoint numbers begin anew, and an old id would have them passed over.
        return to_delta(batch, number, folder, json.loads((checkpoint / "metadata").read_text())["id"])

    writer = rows.writeStream.foreachBatch(write_batch)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
