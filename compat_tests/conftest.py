"""Fixtures for tests that need a real broker process and real clients.

The broker is `python -m ottla start` unless the environment says otherwise, so that every test can be proven against
Apache Kafka before Ottla is blamed:

    OTTLA_COMPAT_BROKER=kafka               start Apache Kafka 4 wherever a test would start Ottla
    OTTLA_COMPAT_PORTABLE=1                 start Ottla without what only Linux has, and fail if it is called all the same
    OTTLA_COMPAT_GUARDED=1                  start Ottla with TLS, SASL and rules, and log in for every client
    OTTLA_COMPAT_WORKERS=4                  start Ottla with so many workers, and leave out what is marked `one_broker`
    OTTLA_COMPAT_BOOTSTRAP=127.0.0.1:9092   use this running broker; tests that stop and start brokers are skipped

A client that is not on this machine is a skip that pytest counts. Under CI=true every skip in this folder is a failure.
"""

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
NODE_MODULES = CACHE / "node" / "node_modules"
IN_CI = os.environ.get("CI") == "true"

sys.path.insert(0, str(ROOT))  # pytest's importlib mode leaves it off
from compat_tests.apache.brokers import ApacheKafka, ApacheKafka3, ApacheKafka4, jars
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, RunningBroker, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.groups import wait_for_groups
from compat_tests.support.guarding import GuardedForAll
from compat_tests.support.java_tools import FAST_START, JavaTools, OneJvm
from compat_tests.support.portable import be_portable
from compat_tests.support.workers import WorkersProcess

# --- a missing client: skip here, failure in CI -----------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("OTTLA_COMPAT_PORTABLE") == "1":
        be_portable()
    # Warnings about the clients' own code are not ours to mend: here those given while modules are imported ...
    for module in ("kafka", "aiokafka", "confluent_kafka", "importlib.resources"):
        config.addinivalue_line("filterwarnings", rf"ignore::DeprecationWarning:{re.escape(module)}.*")


@pytest.fixture(scope="session", autouse=True)
def kafka_python_that_asks_again() -> None:
    with contextlib.suppress(ImportError):
        import compat_tests.support.asking_again  # noqa: F401


# Folders of short files, in their order: processes that end with these end at about the same time.
LAST = ("tools", "coordination", "bad_input")


def _place(item: pytest.Item) -> int:
    folder = item.path.parent
    return LAST.index(folder.name) + 1 if folder.parent.name == "compat_tests" and folder.name in LAST else 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("OTTLA_COMPAT_WORKERS"):
        left_out = [item for item in items if item.get_closest_marker("one_broker")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_place)
    for item in items:
        if item.path.is_relative_to(ROOT / "compat_tests"):
            # ... and here what they leave open or raise in threads of their own.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    report = yield
    return report if item.get_closest_marker("may_be_skipped") else _no_skips_in_ci(report, item.path)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> object:
    report = yield
    return _no_skips_in_ci(report, collector.path)


def _no_skips_in_ci(report, path: Path):
    if IN_CI and report.skipped and path.is_relative_to(ROOT / "compat_tests"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped, which CI does not allow: {reason}"
    return report


def _need(thing: Path | str | None, what: str) -> str:
    if thing is None or not Path(thing).exists():
        pytest.skip(f"{what} is not on this machine (`make setup` brings it)")
    return str(thing)


# --- brokers -----------------------------------------------------------------------------------------------------------


def _new_process(directory: Path, settings: dict[str, str]) -> BrokerProcess:
    if os.environ.get("OTTLA_COMPAT_BROKER") == "kafka":
        return ApacheKafka4(directory, settings)
    if os.environ.get("OTTLA_COMPAT_GUARDED") == "1" and "listeners" not in settings:
        return GuardedForAll(directory, settings)
    if workers := os.environ.get("OTTLA_COMPAT_WORKERS"):
        return WorkersProcess(directory, {"num.workers": workers} | settings)
    return OttlaProcess(directory, settings)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess | RunningBroker]:
    """The broker that tests share: never stop it, use topics and groups of your own."""
    if bootstrap := os.environ.get("OTTLA_COMPAT_BOOTSTRAP"):
        yield RunningBroker(bootstrap)
        return
    process = _new_process(tmp_path_factory.mktemp("broker"), {}).start()
    wait_for_groups(process.bootstrap)
    yield process
    assert not process.died(), f"the shared broker died with status {process.process.returncode}:\n{process.log}"
    process.stop()


@pytest.fixture(scope="session")
def bootstrap(broker) -> str:
    return broker.bootstrap


# With Kafka's default of 5 s most of what members of the newer groups do is wait for their next heartbeat.
SOON = {
    f"group.{kind}.{name}": "500"
    for kind in ("consumer", "share")
    for name in ("min.heartbeat.interval.ms", "heartbeat.interval.ms")
}


@pytest.fixture(scope="session")
def bootstrap_of_quick_groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """As `bootstrap`. This broker tells members of consumer and share groups soon what has changed."""
    if bootstrap := os.environ.get("OTTLA_COMPAT_BOOTSTRAP"):
        yield bootstrap
        return
    process = _new_process(tmp_path_factory.mktemp("quick_groups"), SOON).start()
    wait_for_groups(process.bootstrap)
    yield process.bootstrap
    assert not process.died(), f"the broker died with status {process.process.returncode}:\n{process.log}"
    process.stop()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts brokers of the test's own: `start_broker({"log.retention.ms": "1000"})`."""
    if "OTTLA_COMPAT_BOOTSTRAP" in os.environ:
        pytest.skip("needs to start brokers, and OTTLA_COMPAT_BOOTSTRAP names a running one")
    processes: list[BrokerProcess] = []

    def start(settings: dict[str, str] | None = None, port: int = 0) -> BrokerProcess:
        directory = tmp_path / f"broker-{len(processes)}"
        directory.mkdir()
        processes.append(_new_process(directory, settings or {}))
        processes[-1].port = port or processes[-1].port
        return processes[-1].start()

    yield start
    for process in processes:
        process.stop()


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Starts a cluster of the test's own: `start_cluster(3, {"num.partitions": "1"}, zookeepers=3)`.

    Under OTTLA_COMPAT_BROKER=kafka its brokers are Apache Kafka 3.9's, as long as no `kinds` are named.
    """
    with contextlib.ExitStack() as running:

        def start(size: int = 3, settings: dict[str, str] | None = None, **options: Any) -> Cluster:
            kind = ApacheKafka3 if os.environ.get("OTTLA_COMPAT_BROKER") == "kafka" else OttlaProcess
            kinds = options.pop("kinds", [kind] * size)
            return running.enter_context(Cluster(_new_folder(tmp_path, "cluster"), kinds, settings, **options))

        yield start


def _new_folder(parent: Path, kind: str) -> Path:
    folder = parent / f"{kind}-{sum(1 for _ in parent.glob(f'{kind}-*'))}"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def apache_kafka_4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka 4 beside the broker under test, shared: use topics and groups of your own."""
    kafka = ApacheKafka4(tmp_path_factory.mktemp("apache_kafka_4"), {})
    yield kafka.start()
    kafka.stop()


@pytest.fixture(scope="session")
def apache_kafka_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka 3.9 with its ZooKeeper, shared in the same way."""
    kafka = ApacheKafka3(tmp_path_factory.mktemp("apache_kafka_3"), {})
    yield kafka.start()
    kafka.stop()


@pytest.fixture(scope="session")
def is_ottla(broker) -> bool:
    """Whether the broker under test is Ottla, for the few things that only it promises."""
    return isinstance(broker, OttlaProcess)


# --- names, topics and waiting ----------------------------------------------------------------------------------------

KEEP_EVERYTHING = {"retention.ms": "-1"}


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes a name that no other test and no earlier run has used."""
    test_name = re.sub(r"[^a-zA-Z0-9_.-]+", "-", request.node.name)[:80]
    return lambda kind: f"{test_name}-{kind}-{secrets.token_hex(4)}"


@pytest.fixture
def make_topic(bootstrap: str, unique: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic and returns its name: `make_topic(partitions=3, configs={"retention.ms": "1000"})`."""
    from confluent_kafka.admin import AdminClient, NewTopic

    def make(partitions: int = 1, configs: dict[str, str] | None = None, servers: str = bootstrap) -> str:
        name = unique("topic")
        admin = AdminClient({"bootstrap.servers": servers})
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=configs or {})
        admin.create_topics([new])[name].result(60)

        def is_known(asking: AdminClient) -> bool:
            return len(asking.list_topics(name, timeout=60).topics[name].partitions) == partitions

        # A broker may answer before its metadata knows the topic, and some clients then wait for minutes. So may any other
        # broker of a cluster; a new client asks the one that it was told of.
        wait_until(lambda: is_known(admin), "the topic is known")
        found = admin.list_topics(name, timeout=60).brokers.values()
        for each in found if len(found) > 1 else ():
            address = f"{each.host}:{each.port}"
            wait_until(
                lambda at=address: is_known(AdminClient({"bootstrap.servers": at})), f"the topic is known at {address}"
            )
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A new topic with one partition, which keeps records of long ago: retention takes them away at its first look."""
    return make_topic(configs=KEEP_EVERYTHING)


@pytest.fixture(scope="session", name="wait_until")
def _wait_until() -> Callable[..., object]:
    return wait_until


# --- clients that are not Python --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def run() -> Callable[..., str]:
    """Runs a client's command, which has to succeed, and returns what it printed."""

    def run_command(*command: str, stdin: str = "", timeout_s: float = 240, **environment: str) -> str:
        done = subprocess.run(
            command,
            check=False,
            input=stdin,
            text=True,
            capture_output=True,
            timeout=timeout_s,
            env=os.environ | environment,
        )
        shown = f"{' '.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        assert done.returncode == 0, f"exit status {done.returncode}: {shown}"
        return done.stdout

    return run_command


@pytest.fixture(scope="session")
def kcat() -> str:
    return _need(shutil.which("kcat"), "kcat")


@pytest.fixture(scope="session")
def node() -> tuple[str, str]:
    """The node command, and the folder of modules that holds kafkajs."""
    return _need(shutil.which("node"), "node"), str(Path(_need(NODE_MODULES / "kafkajs", "kafkajs")).parent)


@pytest.fixture(scope="session")
def kgo() -> str:
    """The command that `make setup` builds of clients/kgo."""
    return _need(CACHE / "kgo" / "kgo", "franz-go")


@pytest.fixture
def go_admin(run: Callable[..., str], unique: Callable[[str], str]) -> Callable[..., list[dict[str, str]]]:
    """Return a function that runs a client of clients/go_admin at each address, and returns the results of its steps by their names.

    The clients run at the same time, because each sleeps for some seconds until its topic is deleted. `make setup` builds them.
    """
    command = _need(CACHE / "go_admin" / "go_admin", "kafka-go")

    def make_and_delete(client: str, *addresses: str) -> list[dict[str, str]]:
        def ask(address: str) -> dict[str, str]:
            return dict(line.split("=", 1) for line in run(command, client, address, unique("topic")).splitlines())

        with ThreadPoolExecutor() as threads:
            return list(threads.map(ask, addresses))

    return make_and_delete


@pytest.fixture(scope="session")
def java() -> list[str]:
    """The java command up to the class name, with Kafka's clients on the class path."""
    return ["java", *FAST_START, "-cp", f"{jars('kafka_4')}/*"]


@pytest.fixture(scope="session")
def coordinated(java: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of clients/java/Coordinated.java, up to the scenario."""
    return _compiled(java, "Coordinated", tmp_path_factory.mktemp("coordinated"))


@pytest.fixture(scope="session")
def java_scenarios(java: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of clients/java/Scenarios.java, up to the scenario."""
    return _compiled(java, "Scenarios", tmp_path_factory.mktemp("java"))


@pytest.fixture(scope="session")
def in_one_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """As `run` of one of these commands, in a JVM that has started: `in_one_jvm(coordinated, "fencing", ...)`."""
    running: dict[str, OneJvm] = {}

    def run_in_jvm(command: list[str], *arguments: str) -> str:
        *_, class_path, class_name = command
        if class_path not in running:
            running[class_path] = OneJvm(class_path, tmp_path_factory.mktemp("jvm") / "log.txt")
        return running[class_path](class_name, *arguments).fine()

    yield run_in_jvm
    for jvm in running.values():
        jvm.close()


def _compiled(java: list[str], name: str, folder: Path) -> list[str]:
    *command, class_path = java
    compiler = _need(shutil.which("javac"), "javac")
    source = ROOT / "compat_tests" / "clients" / "java" / f"{name}.java"
    subprocess.run([compiler, "-cp", class_path, "-d", folder, source], check=True, timeout=240)
    return [*command, f"{folder}:{class_path}", name]


@pytest.fixture(scope="session")
def java_with_tools() -> list[str]:
    """The same with Kafka's tools and Kafka Connect, which may be of an earlier release than the clients."""
    return ["java", *FAST_START, "-cp", f"{jars('kafka_4', tools=True)}/*"]


@pytest.fixture(scope="session")
def java_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], JavaTools]]:
    """The tools of a release, in a JVM that tests share: `java_tools("kafka_4")(class_name, *arguments)`."""
    running: dict[str, JavaTools] = {}

    def tools(release: str) -> JavaTools:
        if release not in running:
            running[release] = JavaTools(release, tmp_path_factory.mktemp("java_tools") / "log.txt")
        return running[release]

    yield tools
    for each in running.values():
        each.close()
