"""Apache Kafka itself: 4 with KRaft, and 3.9 with a ZooKeeper of its own.

The jars come from Maven Central (`make setup`, once, into .cache/jars/); releases/pom.xml names their versions.
Everything listens on free ports of the loopback interface, lives in the folder it is given, and dies with the process
that started it.
"""

import contextlib
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compat_tests.apache.class_sharing import shared
from compat_tests.support.brokers import BrokerProcess, free_port, wait_until
from compat_tests.support.raw import Peer

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".cache" / "jars" / "compat_tests" / "apache" / "releases"
# Where a release's command-line tools have jars of their own, because they appear later than its broker.
TOOLS = {"kafka_4": "kafka_4_tools"}

# The heap and the collector of kafka-server-start.sh and kafka-run-class.sh.
HEAP = ("-Xmx1G", "-Xms1G")
COLLECTOR = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
JVM = ("-server", *COLLECTOR, "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true")
# A short-lived JVM is slowed down by its optimizing compiler and its parallel collector.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true")

LOG4J = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d %p %m (%c)%n
"""

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
# One node has to hold what Kafka would spread over three.
ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
ALONE_4 = {"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1"}


def jars(release: str, *, tools: bool = False) -> Path:
    """The folder of a release's jars ("kafka_4" or "kafka_3"), those of its broker and clients or of its tools.

    Without them the test is skipped, and says why.
    """
    release = TOOLS.get(release, release) if tools else release
    folder = JARS / release
    if not (folder / ".ready").exists():
        pytest.skip(
            f"Apache Kafka's jars are not in {folder.relative_to(ROOT)}: `make setup` fetches them from Maven Central"
            " with mvn, which needs the network once"
        )
    if shutil.which("java") is None:
        pytest.skip("java is not on this machine: `make setup` installs it")
    return folder


def version(release: str) -> str:
    """The exact version of a release, as its broker's jar names it: "4.4.0"."""
    return next(jars(release).glob("kafka_2.13-*.jar")).stem.removeprefix("kafka_2.13-")


def write_properties(path: Path, properties: dict[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


def accepts_connections(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def bound_to_us() -> list[str]:
    """A prefix for commands: the kernel kills them when the thread that started them is no more."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


class ApacheKafka(BrokerProcess):
    """One node of Apache Kafka. `heap` replaces the 1 GB of its start script."""

    clean_exit_status = 143
    start_timeout_s = 120.0  # two seconds on a machine that has nothing else to do
    stop_timeout_s = 90.0
    release: str
    is_measured = False
    """As its own scripts start it. Otherwise it starts with half of the work, and is slower later."""

    def __init__(self, directory: Path, settings: dict[str, str], *, heap: tuple[str, ...] = HEAP) -> None:
        super().__init__(directory, settings)
        self.jars = jars(self.release)
        self.heap = heap

    def java(self, *options: str) -> list[str]:
        log4j = self.directory / "log4j.properties"
        log4j.write_text(LOG4J)
        logging = f"-Dlog4j.configuration=file:{log4j}"
        jvm = JVM if self.is_measured else (*FAST_START, *shared("broker", self.jars))
        return [*bound_to_us(), "java", *self.heap, *jvm, *options, logging, "-cp", f"{self.jars}/*"]

    def command(self) -> list[str]:
        self.port = self.port or free_port()
        listener = {"listeners": f"{self.protocol}://{self.host}:{self.port}", "log.dirs": str(self.data_dir)}
        config = self.directory / "server.properties"
        write_properties(config, ALONE | listener | self.properties(listener["listeners"]) | self.settings)
        self.prepare(config)
        return [*self.java(), "kafka.Kafka", str(config)]

    def properties(self, listener: str) -> dict[str, str]:
        """What this release needs beside what both need."""
        raise NotImplementedError

    def prepare(self, config: Path) -> None:
        """What has to be there before the broker starts."""

    def address(self, log: str) -> tuple[str, int] | None:
        # The listener opens when the broker is ready for clients.
        return (self.host, self.port) if accepts_connections(self.host, self.port) else None


class ApacheKafka4(ApacheKafka):
    """KRaft: broker and controller in one process, formatted on first use."""

    release = "kafka_4"

    def properties(self, listener: str) -> dict[str, str]:
        controller = f"127.0.0.1:{free_port()}"
        return ALONE_4 | {
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"{self.settings['node.id']}@{controller}",
            "listeners": f"{listener},CONTROLLER://{controller}",
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{self.protocol}:{self.protocol}",
        }

    def prepare(self, config: Path) -> None:
        if not (self.data_dir / "meta.properties").exists():
            tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
            subprocess.run([*self.java(), *tool], check=True, capture_output=True, cwd=self.directory)


class ApacheKafka3(ApacheKafka):
    """ZooKeeper mode; the ZooKeeper it needs runs and stops with it, unless the settings name another."""

    release = "kafka_3"

    def __init__(self, directory: Path, settings: dict[str, str], **options: Any) -> None:
        super().__init__(directory, {"broker.id": settings.get("node.id", "0")} | settings, **options)
        # KRaft's name for broker.id, which `support.brokers.SETTINGS` has.
        self.settings.pop("node.id", None)
        self.zookeeper: ZooKeeper | None = None

    def properties(self, listener: str) -> dict[str, str]:
        if "zookeeper.connect" in self.settings:
            return {}
        if self.zookeeper is None:
            self.zookeeper = ZooKeeper(self.directory / "zookeeper", small_java)
        self.zookeeper.start()
        return {"zookeeper.connect": self.zookeeper.address}

    def address(self, log: str) -> tuple[str, int] | None:
        """In ZooKeeper mode the listener opens before there is a controller, and requests for it are lost meanwhile."""
        if (found := super().address(log)) is None or "sasl.enabled.mechanisms" in self.settings:
            return found
        with contextlib.suppress(AssertionError, OSError), Peer(found) as peer:
            answer = peer.call("Metadata", 9, topics=[])
            return found if answer.brokers and answer.controller_id >= 0 else None
        return None

    def wait_until_serving(self) -> BrokerProcess:
        """After SIGKILL the registration of the process before is there until its session ends: until then Kafka gives up."""
        while True:
            try:
                return super().wait_until_serving()
            except AssertionError:
                if not (self.died() and "NodeExists" in self.log[self._already_logged :]):
                    raise
                self.launch()

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            if self.zookeeper is not None:
                self.zookeeper.stop()


def small_java(*options: str) -> list[str]:
    """A JVM that starts fast and stays small, for what is not measured: the java command up to the class name."""
    folder = jars("kafka_3")
    return [*bound_to_us(), "java", *FAST_START, *shared("zookeeper", folder), *options, "-cp", f"{folder}/*"]


class ZooKeeper:
    """One Apache ZooKeeper server, from the jars that come with Kafka 3.9. Its data outlives any number of stops."""

    def __init__(
        self,
        directory: Path,
        java: Callable[..., list[str]],
        settings: dict[str, str] | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        """`settings` go into its configuration file, `options` to the JVM."""
        directory.mkdir()
        self.directory = directory
        self.java = java
        self.settings = settings or {}
        self.options = options
        self.host, self.port = "127.0.0.1", 0
        self.inside: list[str] = []
        """A prefix for the command, as BrokerProcess has it."""

        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        if self.process is None or self.process.poll() is not None:
            self.launch()
        wait_until(lambda: accepts_connections(self.host, self.port), "ZooKeeper listens")

    def launch(self) -> None:
        self.port = self.port or free_port()
        properties = {"dataDir": str(self.directory / "data"), "clientPort": str(self.port)}
        properties |= {"clientPortAddress": self.host, "admin.enableServer": "false", "tickTime": "500"}
        config = write_properties(self.directory / "zookeeper.properties", properties | self.settings)
        java = self.java("-Xmx128m", "-Xms32m", *self.options)
        command = [*self.inside, *java, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        with (self.directory / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None
