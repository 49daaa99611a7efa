"""The guide to a secured cluster of three machines, line by line: all on this machine, at three of its addresses."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.apache.brokers import jars
from compat_tests.support.brokers import OttlaProcess, free_port, wait_until
from compat_tests.support.java_tools import FAST_START
from compat_tests.support.zookeepers import Ensemble
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cluster.md"
MACHINES = {"broker1.example": "127.0.0.2", "broker2.example": "127.0.0.3", "broker3.example": "127.0.0.4"}
TOOLS = {"kafka-topics.sh": "org.apache.kafka.tools.TopicCommand", "kafka-acls.sh": "kafka.admin.AclCommand"}


def blocks() -> list[str]:
    """The guide's blocks of lines, in their order: commands, server.properties, commands, commands."""
    section = PAGE.read_text().partition("### The same, secured\n")[2].partition("\n### Keep it running")[0]
    return re.findall(r"^```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


class Guide:
    """Where the lines are run. Only names of hosts, ports and paths are others; scp copies to another folder."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.folder, self.zookeeper, self.port = folder, zookeeper, free_port()
        self._commands = folder / "bin"
        self._commands.mkdir()
        self._add("ottla", f'exec {sys.executable} -m ottla "$@"')
        # scp FILES HOST:/etc/ottla/
        self._add(
            "scp", 'to="${@: -1}"; mkdir -p "$MACHINES/${to%%:*}/etc"; cp "${@:1:$#-1}" "$MACHINES/${to%%:*}/etc"'
        )
        for name, tool in TOOLS.items():
            java = " ".join(["java", *FAST_START, "-cp", f"'{jars('kafka_3', tools=True)}/*'", tool])
            self._add(name, f'exec {java} "$@"')

    def _add(self, name: str, line: str) -> None:
        path = self._commands / name
        path.write_text(f"#!/bin/bash\nset -e\n{line}\n")
        path.chmod(0o755)

    def translated(self, text: str) -> str:
        for name, address in MACHINES.items():
            text = text.replace(name, address)
        return text.replace(":9092", f":{self.port}")

    def run(self, commands: str) -> str:
        environment = os.environ | {"PATH": f"{self._commands}:{os.environ['PATH']}", "MACHINES": str(self.folder)}
        said = subprocess.run(
            ["bash", "-e", "-c", self.translated(commands)],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert said.returncode == 0, f"{commands}\n{said.stdout}\n{said.stderr}"
        return said.stdout

    def broker(self, number: int, host: str, properties: str, start: str) -> OttlaProcess:
        """The broker of one machine, which has its own broker.id, host and file."""
        machine = self.folder / MACHINES[host]
        lines = properties.replace("broker.id=1", f"broker.id={number}").splitlines()
        own = [each.replace("broker1.example", host) if each.startswith(("adv", "ssl")) else each for each in lines]
        text = self.translated("\n".join(own)).replace("0.0.0.0", MACHINES[host])
        text = re.sub(r"zookeeper\.connect=[^/]*", f"zookeeper.connect={self.zookeeper}", text)
        (machine / "server.properties").write_text(
            text.replace("/etc/ottla", str(machine / "etc")).replace("/var/lib/ottla", str(machine / "data"))
        )
        assert start.split("#")[0].split() == ["ottla", "start", "server.properties"]
        return GuideBroker(machine, {})


class GuideBroker(OttlaProcess):
    def command(self) -> list[str]:
        return [sys.executable, "-m", "ottla", "start", "server.properties"]


@pytest.fixture
def guide(tmp_path: Path) -> Iterator[Guide]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    ensemble.start()
    yield Guide(tmp_path, ensemble.address)
    ensemble.stop()


def test_the_guide_leads_to_a_secured_cluster(guide: Guide) -> None:
    certificates, properties, start, clients = blocks()
    guide.run(certificates)
    brokers = [guide.broker(number, host, properties, start) for number, host in enumerate(MACHINES, 1)]
    try:
        for each in brokers:
            each.launch()
        for each in brokers:
            each.wait_until_serving()
        admin = AdminClient(as_client(guide, "client"))
        wait_until(lambda: len(admin.list_topics(timeout=60).brokers) == 3, "all brokers are known", 60)
        said = guide.run(clients)
        assert "Created topic orders." in said
        assert '"orders"' in said  # by kcat
        wait_until(lambda: in_sync(admin) == [1, 2, 3], "all replicas are in sync", 60)
        shop = as_client(guide, "shop")
        producer = Producer(shop | {"acks": "all"})
        refused: list[object] = []
        producer.produce("orders", b"one", on_delivery=lambda error, _: refused.append(error) if error else None)
        assert producer.flush(60) == 0
        assert refused == []
        restricted = AdminClient(shop)
        with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
            restricted.create_topics([NewTopic("other", 1, 3)])["other"].result(60)
        for each in brokers:
            each.terminate()
        for each in brokers:
            each.wait_for_clean_end()
    finally:
        for each in brokers:
            if each.process is not None and not each.died():
                each.kill()


def as_client(guide: Guide, name: str) -> dict[str, str]:
    tls = guide.folder / "tls"
    return {
        "bootstrap.servers": f"{MACHINES['broker1.example']}:{guide.port}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(tls / "authority.pem"),
        "ssl.certificate.location": str(tls / f"{name}.pem"),
        "ssl.key.location": str(tls / f"{name}.pem"),
    }


def in_sync(admin: AdminClient) -> list[int]:
    topic = admin.list_topics("orders", timeout=60).topics["orders"]
    return sorted(topic.partitions[0].isrs) if topic.partitions else []
