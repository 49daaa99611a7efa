"""What a thread may see of a log: pictures of its segments, while the log itself goes on.

A picture is a segment as it was at one moment. What is below its size never changes while the log's `layout` is the
same, so a thread can read it at leisure; the log learns what came out of it only if that is still so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.log_reader import LogReader
from ottla.replication.log.scan import CorruptSegment
from ottla.replication.log.segment import Segment
from ottla.replication.log.storage import FileCache
from ottla.wire.errors import KafkaError, KeptError
from ottla.wire.threads import let_others_run

SURVEYED_AT_ONCE = 4  # segments whose indexes may be opened on the event loop, one request or one look
SURVEYED_PER_JOB = 256
OPEN_FILES_MAX = 3


class PictureJob(ABC):
    """Something to find out about segments in a thread. Made and finished on the event loop."""

    def __init__(self, log: LogReader, segments: Sequence[Segment]) -> None:
        # A small cache of its own, so that the thread pushes no files out that the log has in use.
        files = FileCache(log.log_directory.storage, OPEN_FILES_MAX)
        self._log = log
        self._layout = log.layout
        self._pairs = [(segment, segment.picture(files)) for segment in segments[:SURVEYED_PER_JOB]]
        self.has_run = False
        self._failure = KeptError()

    def run(self) -> None:
        """Do it, in a thread; `finish` tells what went wrong."""
        try:
            for _, picture in self._pairs:
                try:
                    self.work(picture)
                finally:
                    # A job has hundreds of segments, and only the files of one are open at a time.
                    picture.release_files()
                # Else the event loop would wait for the interpreter lock.
                let_others_run()
        except (OSError, CorruptSegment, CorruptIndex, KafkaError) as error:
            self._failure.keep(error)
        self.has_run = True

    @abstractmethod
    def work(self, picture: Segment) -> None:
        """Find out what is wanted of one segment."""

    def finish(self) -> bool:
        """Let the log learn it; False: the log has changed, nothing is certain. Raises what went wrong."""
        # This comes before the failure: files that were removed meanwhile cannot be read, and that is no fault of the
        # disk.
        if self._log.layout != self._layout:
            return False
        self._failure.raise_it()
        for segment, picture in self._pairs:
            segment.learn(picture)
        return True


class Survey(PictureJob):
    """Opens indexes, makes them anew if they are damaged, and learns the times of segments, the first ones if many."""

    def work(self, picture: Segment) -> None:
        _ = picture.offset_index, picture.max_timestamp, picture.first_batch_timestamp()
