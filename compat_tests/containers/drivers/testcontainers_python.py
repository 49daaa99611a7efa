"""Runs testcontainers' Python module on a stand-in for a container, and prints as JSON how the module starts the container.

python testcontainers_python.py FOLDER_OF_THE_PACKAGE kraft|zookeeper
"""

import io
import json
import shlex
import sys
import tarfile
import types
from typing import Any

told: dict[str, Any] = {"variables": {}, "entrypoint": None, "files": {}, "port": 9093}


class DockerContainer:
    def __init__(self, image: str, **_: Any) -> None:
        self.image, self._network = image, None

    def with_env(self, name: str, text: object) -> "DockerContainer":
        told["variables"][name] = str(text)
        return self

    def with_exposed_ports(self, *_: int) -> "DockerContainer":
        return self

    def with_command(self, command: str) -> "DockerContainer":
        told["command"] = shlex.split(command)
        return self

    def start(self) -> "DockerContainer":
        return self

    def get_container_host_ip(self) -> str:
        return "localhost"

    def get_exposed_port(self, port: int) -> int:
        return port

    def get_wrapped_container(self) -> "DockerContainer":
        return self

    def put_archive(self, folder: str, archive: io.BytesIO) -> None:
        with tarfile.open(fileobj=archive) as opened:
            for member in opened.getmembers():
                told["files"][member.name] = [opened.extractfile(member).read().decode(), member.mode]


class LogMessageWaitStrategy:
    def __init__(self, pattern: Any) -> None:
        told["pattern"] = pattern.pattern

    def with_startup_timeout(self, _: int) -> None:
        pass

    def wait_until_ready(self, _: DockerContainer) -> None:
        pass


def stand_in(name: str, **content: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module


sys.path.insert(0, sys.argv[1])
stand_in("docker")
stand_in("testcontainers.core.container", DockerContainer=DockerContainer)
stand_in("testcontainers.core.utils", raise_for_deprecated_parameter=lambda *_: None)
stand_in("testcontainers.core.wait_strategies", LogMessageWaitStrategy=LogMessageWaitStrategy)
stand_in("testcontainers.community.kafka._redpanda", RedpandaContainer=None)
from testcontainers.community.kafka import KafkaContainer

container = KafkaContainer("ottla:8.0.0")
if sys.argv[2] == "kraft":
    container.with_kraft()
container.start()
print(json.dumps(told))
