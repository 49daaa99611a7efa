"""The clients that load the brokers, each a process of its own: `load` (librdkafka) and the tools of Apache Kafka."""

import contextlib
import itertools
import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.brokers import Broker, Failed, Mock
from benchmarks.programs import built
from benchmarks.wire_client import Client
from compat_tests.apache.brokers import JARS, TOOLS

TIMEOUT_S = 120.0
# The heap of kafka-producer-perf-test.sh.
JAVA = ("java", "-Xmx512M", "-server", "-XX:+UseG1GC", "-cp", f"{JARS / TOOLS['kafka_4']}/*")
PAYLOADS = 500

_topic_numbers = itertools.count()


def load(broker: Broker, what: str, topic: str, *numbers: int, **properties: object) -> dict[str, float]:
    """Runs load.c; `properties` are librdkafka's with underscores for dots."""
    settings = {"bootstrap.servers": broker.bootstrap} | dotted(properties)
    pairs = [f"{name}={value}" for name, value in settings.items()]
    output = run([str(built("load")), what, topic, *map(str, numbers), *pairs])
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    return result


def dotted(properties: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in properties.items()}


def run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"{Path(command[0]).name} did not end within {TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        raise Failed(f"{Path(command[0]).name}: {(done.stderr or done.stdout).strip()[-200:]}")
    return done.stdout


# --- the tools of Apache Kafka ----------------------------------------------------------------------------------------


def producer_performance(
    broker: Broker, topic: str, records: int, payloads: Path, warm_up: int, **properties: object
) -> dict[str, float]:
    """Seconds for the records after the warm-up, which is there for the client's own JVM and counts for neither side."""
    settings = {"bootstrap.servers": broker.bootstrap} | dotted(properties)
    command = [*JAVA, "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--throughput", "-1"]
    command += [
        "--num-records",
        str(records + warm_up),
        "--warmup-records",
        str(warm_up),
        "--payload-file",
        str(payloads),
    ]
    output = run([*command, "--command-property", *(f"{name}={value}" for name, value in settings.items())])
    found = re.search(r"(\d+) steady state records sent, ([\d.]+) records/sec", output)
    if found is None or "exception" in output.lower():
        raise Failed(f"ProducerPerformance: {output.strip()[-200:]}")
    return {"records": int(found[1]), "seconds": int(found[1]) / float(found[2])}


def consumer_performance(broker: Broker, topic: str, records: int) -> dict[str, float]:
    """Seconds of fetching: without the start of the JVM and the joining of the group, which have rows of their own."""
    command = [*JAVA, "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", broker.bootstrap]
    command += ["--topic", topic, "--num-records", str(records), "--hide-header", "--timeout", "20000"]
    output = run(command)
    fields = next((line.split(", ") for line in reversed(output.splitlines()) if line.count(", ") == 9), None)
    if fields is None or int(fields[4]) < records:
        raise Failed(f"ConsumerPerformance: {output.strip()[-200:]}")
    return {"records": int(fields[4]), "seconds": float(fields[7]) / 1000}


def share_consumers(broker: Broker, topic: str, group: str, consumers: int, records: int) -> dict[str, float]:
    """Seconds from the first record to the last, for KafkaShareConsumers in one JVM (ShareConsumers.java)."""
    program = Path(__file__).parent / "java" / "ShareConsumers.java"
    output = run([*JAVA, str(program), broker.bootstrap, topic, group, str(consumers), str(records)])
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    return result


def payload_file(folder: Path, size: int) -> Path:
    """Lines of that many characters for ProducerPerformance, which otherwise spends its time on making random ones."""
    path = folder / f"payloads-{size}"
    if not path.exists():
        lines = (
            f'{{"id":{number * 7919},"name":"user-{number % 1000}",' * (size // 20 + 1) for number in range(PAYLOADS)
        )
        path.write_text("\n".join(line[:size] for line in lines) + "\n")
    return path


# --- topics -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def new_topic(broker: Broker, partitions: int = 1) -> Iterator[str]:
    """A topic for as long as it is needed; librdkafka's mock has one for all."""
    if isinstance(broker, Mock):
        yield broker.topic
        return
    topic = f"bench-{next(_topic_numbers):05}"
    create_topic(broker, topic, partitions)
    try:
        yield topic
    finally:
        with contextlib.suppress(OSError, RuntimeError), Client(broker.admin_port) as client:
            client.delete_topic(topic)


def create_topic(broker: Broker, topic: str, partitions: int = 1) -> None:
    """Returns when all partitions have a leader."""
    with Client(broker.admin_port) as client:
        client.create_topics([topic], partitions, broker.replication_factor)
    wait_for_leaders(broker, topic, partitions)


def wait_for_leaders(broker: Broker, topic: str, partitions: int) -> None:
    with Client(broker.admin_port) as client:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = next((one for one in client.metadata([topic]).topics if not one.error_code), None)
            if found and sum(partition.leader_id >= 0 for partition in found.partitions) == partitions:
                return
            time.sleep(0.01)
    raise Failed(f"{topic} has no leaders after 30 s")
