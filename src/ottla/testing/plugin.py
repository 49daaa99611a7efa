"""The pytest plugin: fixtures `kafka` (one broker) and `kafka_cluster` (three), each a fresh world for every test.

    @pytest.mark.ottla_settings({"auto.create.topics.enable": False})    settings of the brokers of a test, a class or a module
    ottla_settings = auto.create.topics.enable=false                     the same for all tests, in pytest's ini file
    @pytest.mark.ottla_snapshot("orders.ottla")                          begin as this file beside the test, not with nothing
    @pytest.mark.ottla_profile("kafka-2.8")      release or service that the brokers behave as; `ottla_profile` in the ini file

    pytest --ottla-seed 7      the faults of `kafka.chaos()` are those of this seed
    pytest --ottla-shrink      a test that fails under `kafka.chaos()` is run again to find the fewest faults that fail it

The brokers of a test session live in one thread of pytest's process; each process of pytest-xdist has its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from ottla.testing import Kafka, Snapshot

SETTINGS, SNAPSHOT, PROFILE = "ottla_settings", "ottla_snapshot", "ottla_profile"
_NAMES = (SETTINGS, SNAPSHOT, PROFILE)
CLUSTER_BROKERS = 3
_SNAPSHOTS = pytest.StashKey[dict[tuple[Path, int], "Snapshot"]]()
_KAFKAS = pytest.StashKey[list["Kafka"]]()
_FAULTS = pytest.StashKey[list[Any]]()  # of a test that has failed
_KEPT = pytest.StashKey[frozenset[int]]()  # numbers of the faults to make in a run that looks for the fewest


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare what pytest's ini file and command line may say."""
    # Pytest rewrites the asserts of all modules that come with a plugin: it would parse all of Ottla, and in the test's thread
    # and the brokers' at once, where Python 3.11 fails now and then ("AST constructor recursion depth mismatch").
    getattr(pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("ottla")
    group = parser.getgroup("ottla", "Kafka inside a test")
    group.addoption("--ottla-seed", type=int, metavar="N", help="seed of the faults that kafka.chaos() makes")
    group.addoption(
        "--ottla-shrink", action="store_true", help="find the fewest faults of kafka.chaos() that fail a failing test"
    )
    parser.addini(SETTINGS, "settings of the brokers of `kafka` and `kafka_cluster`, name=value", "linelist", [])
    parser.addini(PROFILE, "release or service that these brokers behave as, such as kafka-2.8", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers. Raises UsageError if nobody would see what --ottla-shrink finds."""
    if config.getoption("--ottla-shrink") and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError(
            "--ottla-shrink prints nothing from processes of pytest-xdist; leave out -n, or add -n 0"
        )
    config.addinivalue_line("markers", f"{SETTINGS}(settings): settings of the test's brokers, by Kafka's names")
    config.addinivalue_line("markers", f"{SNAPSHOT}(path): file of a snapshot, relative to the test's, to begin with")
    config.addinivalue_line("markers", f"{PROFILE}(name): release or service that the test's brokers behave as")


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A broker in this process, with nothing in it; see `ottla.testing.Kafka`."""
    yield from _world(request, 1)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A cluster of three brokers in this process, with nothing in it; see `ottla.testing.Kafka`."""
    yield from _world(request, CLUSTER_BROKERS)


def _world(request: pytest.FixtureRequest, brokers: int) -> Iterator[Kafka]:
    from ottla.testing import Repeat  # here, because most sessions of pytest use no broker

    item = request.node
    with _begun(request, brokers) as kafka:
        kafka.repeat = Repeat(request.config.getoption("--ottla-seed"), item.stash.get(_KEPT, None))
        kafkas = item.stash.setdefault(_KAFKAS, [])
        kafkas.append(kafka)
        try:
            yield kafka
        finally:
            kafkas.remove(kafka)  # a test that another plugin runs again tells of its last run alone


def _begun(request: pytest.FixtureRequest, brokers: int) -> Kafka:
    """Start the brokers of a test. What is wrong with its marks or the ini file fails the test by one sentence."""
    from ottla.server.config.broker_config import ConfigError
    from ottla.server.serving import StartupError
    from ottla.testing import Kafka, LabError

    try:
        settings, snapshot = _settings(request) | _profile(request), _snapshot(request)
        return Kafka(brokers, settings) if snapshot is None else Kafka.of(snapshot, settings)
    except pytest.UsageError as error:
        sentence = str(error)
    except (ConfigError, StartupError, LabError) as error:
        marks = [name for name in _NAMES if request.node.get_closest_marker(name) is not None]
        lines = [name for name in (SETTINGS, PROFILE) if request.config.getini(name)]
        if not marks and not lines:
            raise
        given = [f"@pytest.mark.{name}" for name in marks] + [f"{name} in the ini file" for name in lines]
        sentence = f"{' and '.join(given)}: {error}"
    pytest.fail(sentence, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add what the brokers tell to the report of a failing test."""
    report = yield
    if call.when == "teardown":
        return report
    kafkas = item.stash.get(_KAFKAS, []) if report.failed else []
    for told in filter(None, (kafka.report() for kafka in kafkas)):
        report.sections.append(("Ottla", told))
    item.stash[_FAULTS] = [each for kafka in kafkas for each in kafka.faults]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Look for the fewest faults after a test that failed under faults, if --ottla-shrink is given."""
    done = yield
    faults = item.stash.get(_FAULTS, [])
    if faults and item.config.getoption("--ottla-shrink"):
        from ottla.server.testing.chaos.shrinking import fewest

        seed = faults[0].seed
        kept = fewest(sorted({each.number for each in faults}), lambda numbers: _fails(item, seed, numbers))
        reporter = item.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line("")
            reporter.write_line(_told(item, seed, kept, faults))
    # Pytest keeps its items to the end of the session, and a Kafka knows what its clients and its world did.
    item.stash[_KAFKAS], item.stash[_FAULTS] = [], []
    return done


def _fails(item: pytest.Item, seed: int, kept: Sequence[int]) -> bool:
    """Run a test again with some faults of a seed only; return whether it fails."""
    item.stash[_KAFKAS], item.stash[_KEPT] = [], frozenset(kept)
    before, item.config.option.ottla_seed = item.config.option.ottla_seed, seed
    try:
        item._initrequest()  # type: ignore[attr-defined]  # its fixtures are made anew, as for a first run
        # Without a next item all is torn down, also what a class, a module or the session shares.
        return any(report.failed for report in runtestprotocol(item, nextitem=None, log=False))
    finally:
        item.config.option.ottla_seed = before
        del item.stash[_KEPT]


def _told(item: pytest.Item, seed: int, kept: Sequence[int] | None, faults: Sequence[Any]) -> str:
    if kept is None:
        return f"{item.nodeid} did not fail again with the same faults (seed {seed}), so nothing was left out."
    lines = [f"{item.nodeid} fails with {len(kept)} of {len(faults)} faults (--ottla-seed {seed}):"]
    return "\n".join(lines + [f"  {each.text} [{each.number}]" for each in faults if each.number in kept])


def _snapshot(request: pytest.FixtureRequest) -> Snapshot | None:
    """Return the snapshot that the test's nearest mark names; None if it has none."""
    from ottla.testing import Snapshot

    if (mark := request.node.get_closest_marker(SNAPSHOT)) is None:
        return None
    if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], str | PathLike):
        raise pytest.UsageError(f'@pytest.mark.{SNAPSHOT} takes the path of a file, such as "orders.ottla"')
    path = request.path.parent / mark.args[0]
    # Read once for all tests of a session, unless one of them writes it anew.
    read = request.config.stash.setdefault(_SNAPSHOTS, {})
    key = path, path.stat().st_mtime_ns if path.exists() else 0
    if key not in read:
        read[key] = Snapshot.load(path)
    return read[key]


def _profile(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the setting of the lab that names the test's profile; nothing if the test has none."""
    from ottla.server.testing.profiles import profiles

    mark = request.node.get_closest_marker(PROFILE)
    if mark is None:
        name = request.config.getini(PROFILE)
    elif len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], str):
        raise pytest.UsageError(f'@pytest.mark.{PROFILE} takes one name, such as "kafka-2.8"')
    else:
        name = mark.args[0]
    return {profiles.PROFILE: name} if name else {}


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for line in request.config.getini(SETTINGS):
        name, found, value = line.partition("=")
        if not found:
            raise pytest.UsageError(f"{SETTINGS}: {line!r} is not name=value")
        settings[name.strip()] = value.strip()
    # The nearest mark comes first, and counts most.
    for mark in reversed(list(request.node.iter_markers(SETTINGS))):
        if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], Mapping):
            raise pytest.UsageError(
                f'@pytest.mark.{SETTINGS} takes one dictionary, such as {{"log.retention.ms": 1000}}'
            )
        settings |= mark.args[0]
    return settings
