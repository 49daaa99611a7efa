"""The container without an engine: what Containerfile would run is run here, on a file system that takes no writes elsewhere."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from compat_tests.containers.image import Containerfile
from compat_tests.support.brokers import OttlaProcess, free_port
from confluent_kafka import Consumer, Producer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[1]
READ_ONLY = """
import errno, os, sys, threading

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate"}

opened = threading.local()  # the directory that the thread has opened last: files are opened in it by their names alone

def look(event, arguments):
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_DIRECTORY:
        opened.directory = os.fsdecode(arguments[0])
    if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING):
        folder = getattr(opened, "directory", "")
        path = os.path.abspath(os.path.join(folder, os.fsdecode(arguments[0]))) if isinstance(arguments[0], (str, bytes)) else "/dev"
        if not path.startswith((os.environ["VOLUME"], "/dev", "/proc")):
            raise OSError(errno.EROFS, "Read-only file system", path)

if "ottla" in sys.orig_argv:
    sys.addaudithook(look)
"""


CONTAINERFILE = Containerfile(ROOT / "Containerfile")
VOLUME = CONTAINERFILE.last("VOLUME")


def entry_point() -> list[str]:
    """Return the command that `ottla-container` would run; `containers/test_image.py` runs that script itself."""
    assert json.loads(CONTAINERFILE.last("ENTRYPOINT")) == ["ottla-container"]
    return [sys.executable, "-m", "ottla", *json.loads(CONTAINERFILE.last("CMD"))]


def variables(volume: Path) -> dict[str, str]:
    """Return the image's variables, with its volume elsewhere."""
    pairs = dict(pair.split("=", 1) for pair in CONTAINERFILE.last("ENV").split() if not pair.startswith("PATH="))
    assert f"{pairs['XDG_DATA_HOME']}/ottla" == VOLUME
    return pairs | {"XDG_DATA_HOME": str(volume), "VOLUME": str(volume)}


class Contained(OttlaProcess):
    """As `docker run` starts it, with `settings` as variables."""

    def command(self) -> list[str]:
        site = self.directory / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(READ_ONLY)
        path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
        own = variables(self.data_dir) | self.settings | {"PYTHONPATH": path}
        return [
            "env",
            "-u",
            "PYTHONDONTWRITEBYTECODE",
            *(f"{name}={text}" for name, text in own.items()),
            *entry_point(),
        ]


@pytest.fixture
def contained(tmp_path: Path):
    port = free_port()
    broker = Contained(tmp_path, {})
    # The settings of a compose file for Apache Kafka's image.
    broker.settings = {
        "KAFKA_NODE_ID": "4",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "4@broker:29093",
        "KAFKA_LISTENERS": f"CONTROLLER://:29093,HOST://:{port},PLAINTEXT://:0",
        "KAFKA_ADVERTISED_LISTENERS": f"HOST://localhost:{port},PLAINTEXT://broker.invalid:19092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,HOST:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_NUM_PARTITIONS": "2",
        "OTTLA_NUM_PARTITIONS": "3",
        "OTTLA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    broker.data_dir.mkdir()
    yield broker.start()
    broker.stop()


def test_the_entry_point_serves_the_host_with_kafkas_variables(contained):
    address = f"localhost:{contained.port}"
    producer = Producer({"bootstrap.servers": address})
    producer.produce("records", b"one")
    assert producer.flush(60) == 0
    metadata = producer.list_topics("records", timeout=60)
    assert list(metadata.brokers) == [4]
    assert len(metadata.topics["records"].partitions) == 3
    consumer = Consumer({"bootstrap.servers": address, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["records"])
    message = consumer.poll(60)
    assert message.error() is None and message.value() == b"one"
    consumer.close()

    command, own = [sys.executable, "-m", *CONTAINERFILE.health_check], os.environ | contained.settings
    assert subprocess.run(command, check=False, env=own).returncode == 0
    contained.stop()
    done = subprocess.run(command, check=False, text=True, capture_output=True, env=own)
    assert done.returncode == 1
    assert f"127.0.0.1:{contained.port} does not answer" in done.stderr


def test_the_image_is_made_of_what_is_there_and_runs_as_nobody():
    for name, text in CONTAINERFILE.instructions:
        if name == "COPY" and not text.startswith("--from"):
            *sources, _ = text.split()
            for source in sources:
                assert (ROOT / source).exists(), source
    assert int(CONTAINERFILE.last("USER")) >= 1000
    assert set(CONTAINERFILE.last("EXPOSE").split()) == {"9092", "19092"}


def test_the_image_has_every_folder_of_the_package():
    steps = CONTAINERFILE.instructions
    copied = {source for name, text in steps if name == "COPY" for source in text.split()[:-1]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {path.split("/")[0] for path in project["tool"]["setuptools"]["package-dir"].values()} - {"src", ""}
    assert folders <= copied


def pinned(name: str) -> dict[str, tuple[str, int]]:
    """Return the version and the number of hashes of each package in this file of container/."""
    text = (ROOT / "container" / name).read_text().replace("\\\n", "")
    found = {}
    for line in text.splitlines():
        requirement, *hashes = line.split()
        package, _, version = requirement.partition("==")
        assert version and all(each.startswith("--hash=sha256:") for each in hashes)
        found[canonicalize_name(package)] = (version, len(hashes))
    return found


def test_every_package_of_the_image_is_pinned_with_its_hashes():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["security"]]
    pins = pinned("requirements.txt")
    for text in wanted:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)][0]), text
    # Packages with compiled code have a wheel for amd64 and one for arm64.
    compiled = ("cffi", "cramjam", "cryptography", "google-crc32c", "google-re2", "isal", "lz4", "xxhash", "zstandard")
    assert all(pins[each][1] == 2 for each in compiled)
    assert all(count >= 1 for _, count in pins.values())
    [(build, _)] = [pinned("build-requirements.txt")["setuptools"]]
    assert Requirement(project["build-system"]["requires"][0]).specifier.contains(build)


def test_the_labels_of_the_image_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = CONTAINERFILE.labels
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}version"] == project["version"]
    assert labels[f"{prefix}licenses"] == project["license"]
    assert labels[f"{prefix}title"] == "Ottla"
    assert labels[f"{prefix}base.name"] == CONTAINERFILE.last("FROM")


def test_the_base_image_is_one_whole_version():
    """A tag such as 3.13-slim is another image every month."""
    images = [text.split()[0] for name, text in CONTAINERFILE.instructions if name == "FROM"]
    assert len(set(images)) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", images[0])


def test_compose_gives_the_container_one_volume_and_nothing_else():
    composed = yaml.safe_load((ROOT / "compose.yaml").read_text())
    [service] = composed["services"].values()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    [(volume, path)] = [each.split(":") for each in service["volumes"]]
    assert (path, [volume]) == (VOLUME, list(composed["volumes"]))
    assert (ROOT / service["build"]["dockerfile"]).exists()
    assert [each.rpartition(":")[2] for each in service["ports"]] == ["9092"]
