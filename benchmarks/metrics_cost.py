"""What counting and telling metrics costs a broker, in processor time: python -m benchmarks.metrics_cost [ROUNDS]

Six Ottlas take the same small produce requests (acks=1, a record of 1 KiB each, one connection, one after the other) in turns:

    uncounted   without the lines of `server/network/` that count requests and their times, which are cut from the source
    untimed     without those that count times in buckets
    off         as it is, without the HTTP endpoint
    again       the same, which shows how far two processes differ that do the same
    on          with the endpoint, which nobody asks
    scraped     with the endpoint, scraped once a second

A round gives each many short turns, every other time the other way round, so that whatever else the machine does meets all of
them alike. What is told is processor time for a request, user and system, of the turn that a quarter of all were quicker than, as a
ratio to `off` of the same round: its median, the least and the greatest. What scrapes cost is told by itself, too: in turns that take longer there are more of them.
"""

import importlib.machinery
import importlib.util
import runpy
import statistics
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.machine import cpu_seconds, wait_until_quiet
from benchmarks.wire_client import RECORD_BYTES, Client, batch_of, produce_frame
from compat_tests.support.brokers import OttlaProcess

TURNS, REQUESTS, WARM_UP = 30, 150, 2_000
ROUNDS = 7
SCRAPES, SCRAPE_S = 20, 1.0
TIMED = (
    (
        "ottla.server.network.connection",
        """            if not route.request_count & route.sparing and not self._pending:
                route.count_time(elapsed)
""",
    ),
)
COUNTED = (
    *TIMED,
    (
        "ottla.server.network.connection",
        """        route.request_count += 1
        route.request_bytes += size
""",
    ),
    (
        "ottla.server.network.outbox",
        """        call.route.response_bytes += size
""",
    ),
)
"""The lines of the hot path that count, and their modules. What is cut has to be there, or nothing would be measured."""
CUT = {"uncounted": COUNTED, "untimed": TIMED}

Variant = tuple[str, OttlaProcess]


class Cut(OttlaProcess):
    """A broker without some of those lines, by the name of its folder."""

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-m", "benchmarks.metrics_cost", f"--{self.directory.name}", *arguments]


def without(source: str, cut: Iterable[str]) -> str:
    """The source without these lines."""
    for lines in cut:
        assert lines in source, f"it counts in other words than {lines}"
        source = source.replace(lines, "")
    return source


class _Cutting(importlib.machinery.SourceFileLoader):
    cut: tuple[str, ...] = ()

    def source_to_code(self, data, path, *, _optimize=-1):  # type: ignore[no-untyped-def]
        return super().source_to_code(without(bytes(data).decode(), self.cut).encode(), path, _optimize=_optimize)

    def get_code(self, fullname):  # type: ignore[no-untyped-def]
        return self.source_to_code(self.get_data(self.path), self.path)  # never from a compiled file


def load_without(name: str, lines: tuple[str, ...]) -> None:
    """Import a module without these lines."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    loader = _Cutting(name, spec.origin)
    loader.cut = lines
    cut = importlib.util.spec_from_loader(name, loader)
    assert cut is not None and cut.loader is not None
    module = importlib.util.module_from_spec(cut)
    sys.modules[name] = module
    cut.loader.exec_module(module)


def run_without(cut: tuple[tuple[str, str], ...]) -> None:
    """Be `ottla`, without these lines of these modules."""
    # `connection` imports `outbox`, which has to be cut by then.
    for name in sorted({name for name, _ in cut}, reverse=True):
        load_without(name, tuple(lines for of, lines in cut if of == name))
    sys.argv = ["ottla", *sys.argv[2:]]
    runpy.run_module("ottla", run_name="__main__", alter_sys=True)


@contextmanager
def brokers(folder: Path) -> Iterator[list[Variant]]:
    """All of them."""
    http = {"http.listener": "127.0.0.1:0"}
    made: list[Variant] = [
        *((name, Cut(folder / name, {})) for name in CUT),
        *(
            (name, OttlaProcess(folder / name, settings))
            for name, settings in (("off", {}), ("again", {}), ("on", http), ("scraped", http))
        ),
    ]
    try:
        for _, broker in made:
            broker.directory.mkdir()
            broker.start()
        yield made
    finally:
        for _, broker in made:
            broker.stop()


def scrape(broker: OttlaProcess) -> None:
    """Once."""
    port = broker.log.partition("HTTP is served on 127.0.0.1 port ")[2].split()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        assert answer.read()


@contextmanager
def scraping(broker: OttlaProcess) -> Iterator[None]:
    """Once a second, in a thread."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(SCRAPE_S):
            scrape(broker)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def microseconds(pid: int, send: Callable[[], object], count: int) -> float:
    """Processor time of the broker for one request."""
    before = cpu_seconds(pid)
    for _ in range(count):
        send()
    return (cpu_seconds(pid) - before) / count * 1e6


def measure(made: list[Variant], rounds: int) -> dict[str, list[float]]:
    """Microseconds for a request, of each round, by variant."""
    request = produce_frame("load", batch_of(RECORD_BYTES), acks=1)
    clients = {name: Client(broker.port) for name, broker in made}
    found: dict[str, list[float]] = {name: [] for name, _ in made}
    for name, client in clients.items():
        client.create_topics(["load"])
        client.produce(request)
        for _ in range(WARM_UP):
            client.ask_bytes(request)
        print(f"{name} is warm", flush=True)
    with scraping(dict(made)["scraped"]):
        for _ in range(rounds):
            turns: dict[str, list[float]] = {name: [] for name in clients}
            for turn in range(TURNS):
                for name, broker in made if turn % 2 else made[::-1]:
                    assert broker.process is not None
                    ask = partial(clients[name].ask_bytes, request)
                    turns[name].append(microseconds(broker.process.pid, ask, REQUESTS))
            for name, each in turns.items():
                found[name].append(statistics.quantiles(each, n=4)[0])
    for client in clients.values():
        client.close()
    return found


def main() -> None:
    """Measure, and print a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as folder, brokers(Path(folder)) as made:
        found = measure(made, rounds)
        asked = dict(made)["on"]
        assert asked.process is not None
        wait_until_quiet(asked.process.pid)
        one_ms = microseconds(asked.process.pid, lambda: scrape(asked), SCRAPES) / 1000
    print(f"{'':12}us for a request   against off")
    for name, of_rounds in found.items():
        ratios = [each / off for each, off in zip(of_rounds, found["off"], strict=True)]
        spread = f"{statistics.median(ratios):.3f}  ({min(ratios):.3f} to {max(ratios):.3f})"
        print(f"{name:12}{statistics.median(of_rounds):16.1f}   {spread}")
    print(f"one scrape of an idle broker: {one_ms:.2f} ms of processor time")


if __name__ == "__main__":
    if (cut := CUT.get(sys.argv[1].removeprefix("--") if sys.argv[1:] else "")) is not None:
        run_without(cut)
    else:
        main()
