"""How many brokers one `ottla start` runs. Apache Kafka has no such setting, so it is not described to its clients."""

from dataclasses import dataclass

from ottla.server.settings.endpoint import Endpoint
from ottla.wire.settings import parse_integer, setting

FOLDER = "workers"
"""Below a log directory: what the workers from number 1 on have, and what the start itself keeps."""

AUTO = "auto"
AUTO_MAX = 8
WORKERS_MAX = 128


def _count_problem(text: str) -> str | None:
    count = parse_integer(text)
    if text == AUTO or (count is not None and 1 <= count <= WORKERS_MAX):
        return None
    return f"must be a number from 1 to {WORKERS_MAX}, or {AUTO}"


@dataclass(frozen=True, kw_only=True)
class WorkersConfig:
    """The processes of one start."""

    num_workers: str = setting(
        "1",
        check=_count_problem,
        internal=True,
        doc="Processes that serve, each a broker of its own with an id and a port of its own; auto: one for each processor,"
        f" at most {AUTO_MAX}.",
    )

    def count(self, processors: int) -> int:
        """How many workers there are on a machine with so many processors."""
        if self.num_workers == AUTO:
            return max(1, min(processors, AUTO_MAX))
        return int(self.num_workers)


@dataclass(frozen=True)
class Worker:
    """A broker that is one of several processes of one start (`worker_places.py`)."""

    number: int
    count: int
    shared: tuple[Endpoint, ...]
    """Where all workers accept connections, beside each one's own listeners, whose names they have."""

    has_own_tree: bool
    """Whether the start itself holds the coordination tree, so that these workers are the whole cluster."""
