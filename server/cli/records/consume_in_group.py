"""`ottla consume -g GROUP`: print the records that a group assigns, and commit the offsets of written ones."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ottla.server.cli.client.cluster import Cluster, Partition, by_topic
from ottla.server.cli.client.consumer import AtEnd, Batch
from ottla.server.cli.client.group_consumer import COMMIT_S, GroupConsumer
from ottla.server.cli.client.membership import member_of
from ottla.server.cli.client.output import Progress, RequestFailed, note, note_end
from ottla.server.cli.records.bounds import Bounds, begin_and_end
from ottla.server.cli.records.paced_output import IdleClock, Interruption, PacedOutput
from ottla.server.standard_streams import check_reader

if TYPE_CHECKING:
    from ottla.server.cli.records.printing import RecordPrinter

NAMED_MAX = 5
"""Limit of the partitions that the last line names with their committed offsets."""


def consume_in_group(
    cluster: Cluster,
    topics: list[str],
    protocol: str,
    printer: RecordPrinter,
    wanted: tuple[Bounds, int],
    options: argparse.Namespace,
) -> None:
    """Print records as a member of a group until the requested end, or until Ctrl-C.

    `wanted`: option -o and isolation level.
    """
    bounds, isolation = _GroupBounds(cluster, *wanted), wanted[1]
    member = member_of(cluster, options.group, topics, protocol)
    commit_s = None if options.commit == "never" else COMMIT_S if options.commit in (None, "regularly") else math.inf
    group = GroupConsumer(
        cluster, options.group, member, isolation, bounds.begin, commit_s, restarts=not bounds.begins_at_end
    )
    with (
        Interruption() as interruption,
        _ended(group, interruption, options),
        suppress(KeyboardInterrupt),
    ):
        _GroupPrinter(group, printer, bounds, interruption, options).run()


@contextmanager
def _ended(group: GroupConsumer, interruption: Interruption, options: argparse.Namespace) -> Iterator[None]:
    """After this block, commit and leave the group, even if the block fails; then print what was committed."""
    try:
        yield
    except BaseException:
        # Report the failure that ended the block, not one that follows from it.
        interruption.begin_end()
        with suppress(RequestFailed):
            group.end()
        raise
    interruption.begin_end()
    group.end()
    if not options.quiet:
        named = ", ".join(f"{topic} [{number}] at {at}" for (topic, number), at in sorted(group.committed.items()))
        many = f"{len(group.committed)} partitions" if len(group.committed) > NAMED_MAX else named
        note(f"Group {options.group} has committed {many or 'nothing'}")


class _GroupBounds:
    """Option -o for a group: offsets where partitions without a committed offset begin, and where all of them end."""

    def __init__(self, cluster: Cluster, bounds: Bounds, isolation: int) -> None:
        self._cluster, self._bounds, self._isolation = cluster, bounds, isolation
        self._ends: dict[Partition, int | None] = {}

    def begin(self, places: Sequence[Partition]) -> Mapping[Partition, int]:
        return {place: begin for place, (begin, _) in self._found(places).items()}

    @property
    def begins_at_end(self) -> bool:
        return self._bounds.kind == "end"

    @property
    def has_end(self) -> bool:
        return self._bounds.until_ms is not None

    def end(self, place: Partition) -> int | None:
        if self._bounds.until_ms is None:
            return None
        if place not in self._ends:
            self._ends[place] = self._found([place])[place][1]
        return self._ends[place]

    def _found(self, places: Sequence[Partition]) -> dict[Partition, tuple[int, int | None]]:
        return begin_and_end(self._cluster, by_topic(places), self._bounds, self._isolation)


class _GroupPrinter:
    """Printer of the records that a group's member reads. It records in `done` which of them are written."""

    def __init__(
        self,
        group: GroupConsumer,
        printer: RecordPrinter,
        bounds: _GroupBounds,
        interruption: Interruption,
        options: argparse.Namespace,
    ) -> None:
        self._group, self._printer, self._bounds, self._options = group, printer, bounds, options
        self._interruption = interruption
        self._output = PacedOutput(group.beat, interruption.check)
        self._progress = Progress(is_quiet=options.quiet or sys.stdout.isatty())
        self._idle = IdleClock(options.idle)
        self._size = 0

    def run(self) -> None:
        try:
            while not (self._printer.is_done or self._is_at_end or self._idle.is_over(self._group.assigned_s)):
                check_reader()
                for each in self._group.round():
                    self._take(each)
                    if self._printer.is_done:
                        break
        finally:
            self._progress.end()

    @property
    def _is_at_end(self) -> bool:
        return (self._options.exit or self._bounds.has_end) and self._group.is_over

    def _take(self, each: Batch | AtEnd) -> None:
        end = self._bounds.end(each.place)
        if not isinstance(each, Batch):
            self._progress.end()
            self._group.done[each.place] = each.offset
            is_over = self._options.exit or (end is not None and each.offset >= end)
            if not self._options.quiet:
                note_end(*each, is_last=is_over and self._group.open_count == 1)
            if is_over:
                self._group.close(each.place)
            return
        self._idle.restart()
        self._print(each, end)
        if end is not None and each.header.next_offset >= end:
            self._group.close(each.place)

    def _print(self, batch: Batch, end: int | None) -> None:
        """Write the wanted records of a batch. Even after a failure, the group's `done` tells which are written."""
        self._print_and_note(batch, end)
        if self._printer.failure is not None:
            raise self._printer.failure

    def _print_and_note(self, batch: Batch, end: int | None) -> None:
        if self._options.commit == "each":
            for offset, text in self._printer.each(batch, end):
                with self._interruption.held():
                    self._write(text)
                    self._group.done[batch.place] = offset + 1
                self._group.commit()
            return
        text = self._printer.printed(batch, end)
        with self._interruption.held():
            self._write_whole(text, batch, end)

    def _write_whole(self, text: bytes, batch: Batch, end: int | None) -> None:
        try:
            self._write(text)
        except BaseException:
            self._group.done[batch.place] = self._printer.next_offset(batch, end, self._output.written)
            raise
        is_cut = self._printer.is_done or self._printer.failure is not None
        past = self._printer.next_offset(batch, end, len(text)) if is_cut else batch.header.next_offset
        self._group.done[batch.place] = past if end is None else min(past, end)

    def _write(self, text: bytes) -> None:
        self._output.write(text)
        self._size += len(text)
        self._progress.note(self._printer.count, self._size)
