"""`ottla consume -g GROUP --share`: records of a share group, acknowledged when they are written."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.server.cli.client.output import Progress, RequestFailed, note
from ottla.server.cli.client.share_consumer import ACCEPT, GAP, RECORDS_MAX, REJECT, RELEASE, Acquired, ShareConsumer
from ottla.server.cli.records.paced_output import IdleClock, Interruption, PacedOutput
from ottla.server.standard_streams import check_reader

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster
    from ottla.server.cli.records.printing import RecordPrinter

TYPES = {"accept": ACCEPT, "release": RELEASE, "reject": REJECT}
SLICE_BYTES = 32 * 1024


def consume_shared(cluster: Cluster, topics: list[str], printer: RecordPrinter, options: argparse.Namespace) -> None:
    """Print records of a share group until the requested end, or until Ctrl-C."""
    consumer = ShareConsumer(cluster, options.group, topics)
    with Interruption() as interruption:
        loop = _Loop(consumer, printer, interruption, options)
        try:
            with suppress(KeyboardInterrupt):
                loop.run()
        except BaseException:
            # Report the failure that ended the loop, not one that follows from it.
            interruption.begin_end()
            with suppress(RequestFailed):
                consumer.end()
            raise
        interruption.begin_end()
        consumer.end()
    if not options.quiet:
        done = {ACCEPT: "accepted", RELEASE: "released", REJECT: "rejected"}[loop.kind]
        note(f"Group {options.group} has {loop.count:,} records {done}")


class _Loop:
    def __init__(
        self,
        consumer: ShareConsumer,
        printer: RecordPrinter,
        interruption: Interruption,
        options: argparse.Namespace,
    ) -> None:
        self.kind = TYPES[options.acknowledge or "accept"]
        self.count = 0
        """Number of acknowledged records."""
        self._consumer, self._printer, self._interruption, self._options = consumer, printer, interruption, options
        self._output = PacedOutput(consumer.beat, interruption.check)
        self._progress = Progress(is_quiet=options.quiet or sys.stdout.isatty())
        self._idle = IdleClock(options.idle)
        self._records_max, self._size = RECORDS_MAX, 0

    def run(self) -> None:
        try:
            while not (self._printer.is_done or self._is_at_end or self._idle.is_over(self._consumer.assigned_s)):
                check_reader()
                left = RECORDS_MAX if self._options.count is None else self._options.count - self._printer.count
                for each in self._consumer.round(min(self._records_max, left)):
                    self._idle.restart()
                    self._take(each)
                    if self._printer.failure is not None:
                        raise self._printer.failure
        finally:
            self._progress.end()

    @property
    def _is_at_end(self) -> bool:
        return self._options.exit and self._consumer.is_idle

    def _take(self, acquired: Acquired) -> None:
        """Write records, and acknowledge those that are written. The others are released."""
        texts = [found for batch in acquired.batches for found in self._printer.each(batch, None, acquired.offsets)]
        written: list[int] = []
        with self._interruption.held():
            try:
                self._write(texts, written, acquired.until_s)
            finally:
                # Records that are not written are released and come again: they do not count.
                self._printer.count += len(written) - len(texts)
                self._acknowledge(acquired, [offset for offset, _ in texts], written)

    def _write(self, texts: list[tuple[int, bytes]], written: list[int], until_s: float) -> None:
        """Write texts, and add their offsets to `written`. End early if the lock of the records has half gone by."""
        half_s = (until_s - time.monotonic()) / 2
        position = 0
        while position < len(texts) and time.monotonic() < until_s - half_s:
            begin, size = position, 0
            while position < len(texts) and (size == 0 or size + len(texts[position][1]) <= SLICE_BYTES):
                size += len(texts[position][1])
                position += 1
            try:
                self._output.write(b"".join(text for _, text in texts[begin:position]))
            finally:
                left = self._output.written
                for offset, text in texts[begin:position]:
                    left -= len(text)
                    if left < 0:
                        break
                    written.append(offset)
            self._size += size
            self._progress.note(self._printer.count, self._size)
        # A slow reader gets fewer records the next time.
        self._records_max = min(2 * self._records_max, RECORDS_MAX) if position == len(texts) else max(1, position)

    def _acknowledge(self, acquired: Acquired, found: list[int], written: list[int]) -> None:
        is_cut = self._printer.is_done or self._printer.failure is not None
        end = (found[-1] if found else -1) if is_cut else max(acquired.offsets)
        # Offsets without a record are gaps, as far as records were looked at.
        types = {offset: GAP if offset <= end else RELEASE for offset in acquired.offsets}
        types |= dict.fromkeys(found, RELEASE) | dict.fromkeys(written, self.kind)
        if self._consumer.acknowledge(acquired, types):
            self.count += len(written)
