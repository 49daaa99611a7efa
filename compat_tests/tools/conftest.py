"""Every tool runs against the broker under test and against Apache Kafka 4, and has to print the same.

What is replaced before the comparison is listed in NORMALISED, with the reason for each; single tests replace more where
a tool prints timings.
"""

import re
import subprocess
from collections.abc import Callable
from typing import NamedTuple

import pytest
from compat_tests.support.brokers import wait_until
from compat_tests.support.java_tools import JavaTools, Said

TOOLS = "org.apache.kafka.tools."
LOOKS = 10  # again at Apache Kafka, where it shows something else


class Normalised(NamedTuple):
    pattern: str
    replacement: str
    reason: str


NORMALISED = (
    Normalised(r"^\tat .*\n|^\t\.\.\. \d+ more\n", "", "where in a client an error surfaced depends on its threads"),
    Normalised(r"^(SLF4J|log4j):.*\n", "", "only the first tool in a JVM finds that logging is not configured"),
    Normalised(r"TopicId: [\w-]{22}", "TopicId: <id>", "a topic's id is random"),
    Normalised(r"\b[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}\b", "<uuid>", "member ids are random"),
    Normalised(r"/127\.0\.0\.1\b", "<client>", "Java and Python write a client's address alike; only its port differs"),
    Normalised(
        r"^  min\.insync\.replicas=1 sensitive=false synonyms=\{DYNAMIC_DEFAULT_BROKER_CONFIG:[^,}]*\}\n"
        r"|DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1, |(?<=Configs: )min\.insync\.replicas=1,?",
        "",
        "Kafka's formatting sets this for the whole cluster, because it keeps eligible leader replicas (KIP-966)",
    ),
    Normalised(r'"logDir":"[^"]*"', '"logDir":"<data>"', "each broker has a folder of its own"),
    Normalised(r"\(LogDir: [^)]*\)", "(LogDir: <data>)", "each broker has a folder of its own"),
)


class Beside:
    """Runs one command against both: `{bootstrap}` in an argument becomes the address of each."""

    def __init__(self, tools: JavaTools, java: list[str], brokers: tuple[str, str]) -> None:
        self.tools = tools
        self.java = java
        self.brokers = brokers

    def __call__(
        self,
        tool: str,
        *arguments: str,
        stdin: str = "",
        timings: str = "",
        unordered: bool = False,
        arrange: Callable[[str], str] | None = None,
        alone: bool = False,
    ) -> Said:
        """What both printed and how both ended. A tool that is told its broker by --bootstrap-server needs no placeholder.

        `timings` is a pattern of what depends on speed, `unordered` tells that lines come in the order of a hash map,
        `arrange` makes whatever else has to be made comparable. `alone` is for a tool that goes on working when its JVM
        ends, and so needs one of its own.
        """
        commands = []
        for broker in self.brokers:
            given = [argument.replace("{bootstrap}", broker) for argument in arguments]
            if not any("{bootstrap}" in argument for argument in arguments):
                given = ["--bootstrap-server", broker, *given]
            commands.append([tool if tool.startswith("kafka.") else TOOLS + tool, *given])
        told = self._alone(commands) if alone else [self.tools(*command, stdin=stdin) for command in commands]

        def comparable(said: Said, broker: str) -> Said:
            return Said(
                said.status, *(self._comparable(text, broker, timings, unordered, arrange) for text in said[1:])
            )

        ours, kafkas = map(comparable, told, self.brokers)
        # Kafka's controller answers before its broker knows: 50 of 60 settings were not shown at once, for up to 0.3 s.
        for _ in range(LOOKS if "--describe" in arguments and not alone else 0):
            if ours == kafkas:
                break
            kafkas = comparable(self.tools(*commands[1], stdin=stdin), self.brokers[1])
        assert ours.out == kafkas.out
        assert ours == kafkas
        return ours

    def _alone(self, commands: list[list[str]]) -> list[Said]:
        """Side by side, each in its own JVM."""
        running = [
            subprocess.Popen([*self.java, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for command in commands
        ]
        told = [process.communicate(timeout=240) for process in running]
        return [Said(process.returncode, *texts) for process, texts in zip(running, told, strict=True)]

    @staticmethod
    def _comparable(text: str, broker: str, timings: str, unordered: bool, arrange: Callable[[str], str] | None) -> str:
        text = text.replace(broker, "<broker>").replace(broker.partition(":")[2], "<port>")
        for each in NORMALISED:
            text = re.sub(each.pattern, each.replacement, text, flags=re.MULTILINE)
        if timings:
            text = re.sub(timings, "<timing>", text, flags=re.MULTILINE)
        if arrange is not None:
            text = arrange(text)
        return "\n".join(sorted(text.splitlines())) if unordered else text


@pytest.fixture
def brokers(bootstrap, apache_kafka_4) -> tuple[str, str]:
    """The addresses of both."""
    return bootstrap, apache_kafka_4.bootstrap


@pytest.fixture
def beside(java_tools, java_with_tools, brokers) -> Beside:
    return Beside(java_tools("kafka_4"), java_with_tools, brokers)


@pytest.fixture
def both_topic(brokers, unique) -> Callable[..., str]:
    """Creates a topic of one name in both brokers: `both_topic(partitions=2, configs={...})`."""
    from confluent_kafka.admin import AdminClient, NewTopic

    def make(partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        name = unique("topic")
        for servers in brokers:
            admin = AdminClient({"bootstrap.servers": servers})
            new = NewTopic(name, partitions, 1, config={"retention.ms": "-1"} | (configs or {}))
            admin.create_topics([new])[name].result(60)
            # Kafka's controller answers before its broker knows the topic.
            wait_until(
                lambda: len(admin.list_topics(name, timeout=60).topics[name].partitions) == partitions,  # noqa: B023
                "it is known",  # noqa: B023, RUF100
            )
        return name

    return make


@pytest.fixture
def new_filled(brokers, both_topic):
    """Makes topics of two partitions with five records each."""
    from confluent_kafka import Producer

    def make() -> str:
        topic = both_topic(partitions=2)
        for servers in brokers:
            producer = Producer({"bootstrap.servers": servers})
            for i in range(10):
                producer.produce(topic, b"value", partition=i % 2, timestamp=1_700_000_000_000 + i * 60_000)
            assert producer.flush(60) == 0
        return topic

    return make


@pytest.fixture
def filled(new_filled) -> str:
    """One of them."""
    return new_filled()
