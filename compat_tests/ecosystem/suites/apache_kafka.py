"""Apache Kafka where a suite would have `ottla.testing`, to measure what its container costs.

    pytest -p apache_kafka -p stand_in ...                          `Kafka` of this module is that of `ottla.testing`
    python apache_kafka.py [--override NAME=VALUE]... -- COMMAND    as `ottla test -- COMMAND`

OTTLA_CONTAINER_SETTINGS holds the settings of the package's own container in JSON; without it they are Kafka's defaults.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from compat_tests.apache.brokers import ApacheKafka4
from compat_tests.apache.class_sharing import shared
from compat_tests.support.brokers import SETTINGS, free_port

import ottla.testing


class Container(ApacheKafka4):
    """Broker as the images of Apache Kafka start it: with the options of its scripts, and with shared classes."""

    is_measured = True

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        super().__init__(directory, settings)
        for name in SETTINGS.keys() - settings.keys() - {"node.id", "offsets.topic.replication.factor"}:
            del self.settings[name]
        listeners = self.settings.pop("listeners", "PLAINTEXT://127.0.0.1:0")
        self.listeners = re.sub(r":0\b", lambda _: f":{free_port()}", listeners)
        self.port = int(self.listeners.split(",")[0].rpartition(":")[2])

    def java(self, *options: str) -> list[str]:
        return super().java(*shared("broker", self.jars), *options)

    def properties(self, listener: str) -> dict[str, str]:
        own = super().properties(listener)
        protocols = [each.partition(":")[0] for each in self.listeners.split(",")]
        controller = own["listeners"].rpartition(",")[2]
        return own | {
            "listeners": f"{self.listeners},{controller}",
            "advertised.listeners": self.listeners,
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{each}:{each}" for each in protocols)]
            ),
        }


class Kafka:
    """Stand-in for `ottla.testing.Kafka`, as far as the suites use it. The broker is killed at the end, which takes no time."""

    def __init__(self, brokers: int = 1, settings: Mapping[str, str] | None = None) -> None:
        assert brokers == 1, "a suite's container is one broker"
        self._folder = tempfile.TemporaryDirectory(prefix="apache-kafka-")
        of_container = json.loads(os.environ.get("OTTLA_CONTAINER_SETTINGS", "{}"))
        both = {name: as_property(value) for name, value in {**of_container, **(settings or {})}.items()}
        self._broker = Container(Path(self._folder.name), both)
        self._broker.start()

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        self._broker.kill()
        self._folder.cleanup()


def as_property(value: str) -> str:
    """Write the lines of a value, such as a certificate's, as one line of a file of properties."""
    return value.strip().replace("\n", r"\n")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--override", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    with Kafka(settings=dict(each.split("=", 1) for each in given.override)) as kafka:
        address = {"OTTLA_BOOTSTRAP": kafka.bootstrap, "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
        return subprocess.run(given.command, env=os.environ | address, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
ottla.testing.Kafka = Kafka  # type: ignore[misc,assignment]  # before the stand-in takes it from there
