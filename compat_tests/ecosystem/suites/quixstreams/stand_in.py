"""Quix Streams' tests describe containers with testcontainers: this one is a Kafka, or a schema registry, of this process.

They choose a free port themselves and write it into KAFKA_ADVERTISED_LISTENERS as the listener EXTERNAL.
"""

import os
import re
import signal
import subprocess
import sys
from typing import Any, Self

import testcontainers.core.container
import testcontainers.core.network

from ottla.testing import Kafka

SETTINGS = {"log.retention.ms": "-1", "group.initial.rebalance.delay.ms": "10"}
ADDRESSES: dict[str, str] = {}
"""Addresses of the brokers, by the host name that containers would use for each other."""


class Container:
    """Stand-in for DockerContainer: `with_...` collects what is asked for, `start` runs it."""

    def __init__(self, image: str, **options: Any) -> None:
        self._image, self._host_name = image, options.get("hostname", "")
        self._environment: dict[str, str] = {}
        self._kafka: Kafka | None = None
        self._registry: subprocess.Popen[bytes] | None = None

    def with_env(self, name: str, value: str) -> Self:
        self._environment[name] = value
        return self

    def with_bind_ports(self, *_: int) -> Self:
        return self

    def with_network(self, _: object) -> Self:
        return self

    def start(self) -> Self:
        if "schema-registry" in self._image:
            self._start_registry()
        else:
            address = re.search("EXTERNAL://([^,]*)", self._environment["KAFKA_ADVERTISED_LISTENERS"])
            assert address is not None
            self._kafka = Kafka(settings=SETTINGS | {"listeners": f"PLAINTEXT://{address[1]}"})
            ADDRESSES[self._host_name] = self._kafka.bootstrap
        return self

    def _start_registry(self) -> None:
        host_name = re.search("//([^:]*):", self._environment["SCHEMA_REGISTRY_KAFKASTORE_BOOTSTRAP_SERVERS"])
        port = self._environment["SCHEMA_REGISTRY_LISTENERS"].rpartition(":")[2]
        assert host_name is not None
        command = ["registry", "-b", ADDRESSES[host_name[1]], "--listen", f"0.0.0.0:{port}", "--log-level", "error"]
        self._registry = subprocess.Popen(
            [sys.executable, "-m", "ottla", *command], stdout=subprocess.PIPE, env=os.environ
        )

    def get_logs(self) -> tuple[bytes, bytes]:
        """What they wait for in the log; the registry says it when it listens."""
        if self._registry is not None:
            assert self._registry.stdout is not None
            self._registry.stdout.readline()
        return b"Kafka Server started", b"Server started, listening for requests"

    def stop(self) -> None:
        if self._kafka is not None:
            self._kafka.close()
        if self._registry is not None:
            self._registry.send_signal(signal.SIGTERM)
            self._registry.communicate(timeout=30)


class Network:
    """Stand-in for Network: all are on loopback."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


# Before their conftest takes both from there.
testcontainers.core.container.DockerContainer = Container  # type: ignore[assignment,misc]
testcontainers.core.network.Network = Network  # type: ignore[assignment,misc]
