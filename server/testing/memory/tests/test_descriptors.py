"""Descriptors of files in memory, which TLS reads: they have the bytes of the file, whatever was done to it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli.cli import main
from ottla.server.config.broker_config import load_config
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.memory.contents import Contents

CHANGES = st.lists(st.one_of(st.binary(max_size=20), st.integers(0, 60), st.just(None)), max_size=12)


@given(CHANGES)
def test_a_descriptor_has_the_bytes_of_the_file(changes: list[bytes | int | None]):
    contents = Contents()
    for change in changes:
        if isinstance(change, bytes):
            contents.append(change)
        elif change is None:
            contents.freeze()
        else:
            contents.truncate(change)
        assert os.pread(contents.descriptor(), 1000, 0) == bytes(contents)


def test_descriptors_go_with_their_files():
    many = [Contents() for _ in range(10)]
    for each in many:
        each.append(b"x")
    files = {(found.st_dev, found.st_ino) for found in (os.fstat(each.descriptor()) for each in many)}
    assert len(files) == 10 and files <= open_files()
    del many, each
    assert not files & open_files()


def open_files() -> set[tuple[int, int]]:
    """Return device and inode of each open file of this process."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add((each.stat().st_dev, each.stat().st_ino))
    return found


def test_records_are_read_over_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["certificates", str(tmp_path / "tls")]) == 0
    text = (tmp_path / "tls" / "localhost.properties").read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    del settings["advertised.listeners"]
    load_config(settings)
    names = {"ca": "authority.pem", "certificate": "client.pem", "key": "client.pem"}
    client = {f"ssl.{name}.location": str(tmp_path / "tls" / file) for name, file in names.items()}
    with Kafka(settings=settings | {"listeners": "SSL://127.0.0.1:0"}) as kafka:
        client |= {"bootstrap.servers": kafka.bootstrap, "security.protocol": "SSL"}
        kafka.topic("orders")
        producer = Producer(client)
        producer.produce("orders", b"x" * 100_000)
        assert producer.flush(30) == 0
        consumer = Consumer(client | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        message = consumer.poll(30)
        assert message is not None and message.value() == b"x" * 100_000
        consumer.close()
