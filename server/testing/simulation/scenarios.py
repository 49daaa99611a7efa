"""Scenarios of users, each run with many seeds on virtual time.

    async def failover(sim):
        client = sim.client()
        await client.create_topic("orders", replicas=3)
        producer = client.producer()
        await producer.send("orders", b"before")
        await sim.broker(await client.leader("orders")).kill()
        await producer.send("orders", b"after")
        sim.check([each.value for each in await client.read_all("orders")] == [b"before", b"after"], "a record is lost")

    result = simulate(failover, seeds=range(100))
    assert result.is_good, result

A seed decides what takes how long, which faults happen when, and what `sim.chance` gives: a run of one seed does the same in every
process. A scenario that goes through a set of texts needs PYTHONHASHSEED=0 in the environment for that, because Python orders
such sets by a number of its own in each process.
"""

import contextlib
import inspect
import itertools
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import trio

from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.testing.errors import LabError
from ottla.server.testing.simulation import virtual
from ottla.server.testing.simulation.cluster import FIRST_CLIENT
from ottla.server.testing.simulation.faults import FAULTS
from ottla.server.testing.simulation.simulation import Happened, Scenario, Simulation

LIMIT_S = 3600.0
EVENTS_SHOWN_MAX = 40


class Failure(NamedTuple):
    """A run that failed. `trace`: a hash of all that happened, which another run of the seed has, too."""

    seed: int
    error: str
    events: Sequence[Happened]
    trace: str

    def __str__(self) -> str:
        shown = self.events[-EVENTS_SHOWN_MAX:]
        left = len(self.events) - len(shown)
        lines = [f"seed {self.seed}: {self.error}", *([f"  ... {left} events before"] if left else [])]
        return "\n".join([*lines, *(f"  {each}" for each in shown)])


class Result(NamedTuple):
    """Outcome of all runs. `traces` by seed: hashes of all that happened."""

    seeds: int
    failures: Sequence[Failure]
    traces: Mapping[int, str]
    repeat: str

    @property
    def is_good(self) -> bool:
        """True if no run failed."""
        return not self.failures

    @property
    def failing_seeds(self) -> list[int]:
        """Seeds of the runs that failed."""
        return [each.seed for each in self.failures]

    def check(self) -> None:
        """Raise AssertionError if a run failed."""
        if self.failures:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        if not self.failures:
            return f"{self.seeds} seeds, all of them good"
        shown = [str(each.seed) for each in self.failures[:20]] + ["..."] * (len(self.failures) > 20)
        first = self.failures[0]
        lines = [f"{len(self.failures)} of {self.seeds} seeds failed: {', '.join(shown)}", str(first)]
        return "\n".join([*lines, f"Repeat it with {self.repeat.format(seed=first.seed)}"])


def simulate(
    scenario: Scenario,
    seeds: Iterable[int] = range(1000),
    *,
    brokers: int = 3,
    settings: Mapping[str, object] | None = None,
    faults: Iterable[str] = (),
    stop_after: int | None = 1,
    limit_s: float = LIMIT_S,
    trace: Callable[[str], None] | None = None,
) -> Result:
    """Run a scenario, an async function of a `Simulation`, once for each seed; a run that raises has failed.

    `settings` of the brokers, by Kafka's names. `faults`: names of faults that happen at random times (`FAULTS`). `stop_after`: how
    many runs may fail until the others are left out; None: all seeds are run. `limit_s`: virtual seconds that a run may take. `trace` is called with a line for all that
    happens, messages and log lines of brokers; None: nobody reads it.
    """
    chosen = _checked(scenario, seeds, brokers, faults)
    given = {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (settings or {}).items()
    }
    _check_settings(given)
    failures, traces = [], {}
    for seed in chosen.seeds:
        simulation = Simulation(seed, node_ids=range(1, brokers + 1), settings=given, faults=chosen.faults, tell=trace)
        error = _run(simulation, scenario, limit_s)
        traces[seed] = str(simulation.trace)
        if error:
            failures.append(Failure(seed, error, list(simulation.happened), traces[seed]))
            if stop_after is not None and len(failures) >= stop_after:
                break
    name = getattr(scenario, "__name__", "scenario")
    repeat = f"simulate({name}, seeds=[{{seed}}]), with trace=print for every message"
    if not os.environ.get("PYTHONHASHSEED", "random").isdigit():
        repeat += "; if that run is good, the scenario goes through a set: set PYTHONHASHSEED=0"
    return Result(len(traces), failures, traces, repeat)


class _Chosen(NamedTuple):
    seeds: list[int]
    faults: tuple[str, ...]


def _checked(scenario: object, seeds: Iterable[int], brokers: int, faults: Iterable[str]) -> _Chosen:
    """Raise LabError for parameters that make no sense."""
    if not inspect.iscoroutinefunction(scenario):
        raise LabError(
            f"a scenario is an async function of one parameter, the simulation: async def scenario(sim), not {scenario!r}"
        )
    if isinstance(seeds, int):
        raise LabError(f"seeds are several numbers: seeds=[{seeds}] for one, seeds=range({seeds}) for so many")
    found = list(itertools.islice(seeds, 1_000_001))
    if not found:
        raise LabError("there are no seeds, so that nothing would be run: give seeds=range(100)")
    if len(found) > 1_000_000:
        raise LabError("a million seeds are enough: give seeds=range(1000)")
    for each in found:
        if not isinstance(each, int) or isinstance(each, bool):
            raise LabError(f"a seed is a whole number, not {each!r}")
    if not isinstance(brokers, int) or not 1 <= brokers < FIRST_CLIENT:
        raise LabError(f"a cluster has 1 to {FIRST_CLIENT - 1} brokers, not {brokers!r}")
    if isinstance(faults, str):
        raise LabError(f"faults are several names: faults=[{faults!r}]")
    names = tuple(faults)
    for name in names:
        if name not in FAULTS:
            raise LabError(f"there is no fault {name!r}: choose among {', '.join(FAULTS)}")
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return _Chosen(found, names)
    raise LabError("a simulation has a trio of its own: call simulate() from a function that is not async")


def _check_settings(settings: Mapping[str, str]) -> None:
    """Raise LabError for settings that no broker takes."""
    try:
        load_config({"broker.id": "1", "zookeeper.connect": "zookeeper:2181", **settings})
    except ConfigError as error:
        raise LabError(f"a simulated broker does not start with these settings: {error}") from None


def _run(simulation: Simulation, scenario: Scenario, limit_s: float) -> str:
    """Run one seed; return what went wrong, nothing if all was well."""
    try:
        with simulation.logged(), _no_real_sleep():
            virtual.run(lambda agenda: simulation._run(scenario, agenda, limit_s), simulation.seed)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - one more thing to tell of this seed
        return _told_of(error)
    return "\n".join(simulation.problems)


def _told_of(error: BaseException) -> str:
    """Return the cause in words: the text of a check, a traceback for everything else."""
    found: list[BaseException] = []
    _leaves(error, found)
    for kind in (KeyboardInterrupt, SystemExit):
        for each in found:
            if isinstance(each, kind):
                raise each
    others = [each for each in found if not isinstance(each, trio.Cancelled)] or found
    return "\n".join(
        str(each) if isinstance(each, AssertionError) and str(each) else _traceback(each) for each in others
    )


def _leaves(error: BaseException, found: list[BaseException]) -> None:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            _leaves(each, found)
    elif isinstance(error, trio.TrioInternalError) and isinstance(error.__cause__, virtual.Standstill):
        found.append(error.__cause__)
    else:
        found.append(error)


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


@contextlib.contextmanager
def _no_real_sleep() -> Iterator[None]:
    """Refuse `time.sleep`, which would hold the only thread while no virtual time passes."""
    import time
    from unittest import mock

    def refuse(seconds: float) -> None:
        raise LabError(f"time.sleep({seconds:g}) would stop all simulated time: use await sim.sleep({seconds:g})")

    with mock.patch.object(time, "sleep", virtual.only_here(refuse, time.sleep)):
        yield
