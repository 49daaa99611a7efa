"""A broker in this program and a browser's side of its HTTP endpoint, for the tests of the console."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio

from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.broker import Broker
from ottla.server.config.broker_config import load_config
from ottla.server.serving import serve
from ottla.server.serving_state import Stop
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

FAR_S = 60.0


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.status == 200, self.body
        return json.loads(self.body)


@asynccontextmanager
async def running(directory: Path, **more: str) -> AsyncIterator[Broker]:
    """A broker that serves; settings with _ for the dots."""
    texts = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0", "http.listener": ":0"}
    texts |= {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
    config = load_config(texts | {name.replace("_", "."): text for name, text in more.items()})
    brokers: list[Broker] = []
    stop, ready = Stop(), trio.Event()

    def on_ready(broker: Broker) -> None:
        brokers.append(broker)
        ready.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, config, stop=stop, on_ready=on_ready))
        await ready.wait()
        await brokers[0].member.await_metadata()
        try:
            yield brokers[0]
        finally:
            stop.requested.set()


async def ask(
    broker: Broker,
    path: str,
    *,
    body: Any = None,
    token: str = "",
    headers: Mapping[str, str] | None = None,
    source: str | None = None,
) -> Answer:
    """Send one request: a GET, or a POST of JSON. `source`: address of this end; None: as usual."""
    assert broker.http_address is not None
    with trio.fail_after(FAR_S):
        async with await trio.open_tcp_stream(*broker.http_address, local_address=source) as stream:
            await stream.send_all(request_bytes(path, body, token, headers or {}))
            received = b"".join([piece async for piece in stream])
    head, _, content = received.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    named = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
    return Answer(int(lines[0].split()[1]), named, content)


def request_bytes(path: str, body: Any = None, token: str = "", headers: Mapping[str, str] | None = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    told = {"Host": "localhost", "Connection": "close"}
    if token:
        told["Authorization"] = f"Bearer {token}"
    if body is not None:
        told |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in (told | dict(headers or {})).items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


async def make_topic(broker: Broker, name: str, partitions: int = 1, **configs: str) -> None:
    texts = {key.replace("_", "."): value for key, value in configs.items()}
    [outcome] = await broker.administration.create_topics(
        [NewTopic(name=name, partition_count=partitions, configs=texts)]
    )
    assert not isinstance(outcome, Exception), outcome


def write(broker: Broker, topic: str, records: list[Record], partition: int = 0, **batch: Any) -> None:
    """Append one batch, however long it takes to check it."""
    held, now_ms = broker.partition(topic, partition), broker.now_ms()
    encoded = memoryview(bytearray(encode_batch(records, **batch)))
    checked = held.log.check_thoroughly(encoded, now_ms=now_ms)
    held.append_as_leader(encoded, required_acks=1, now_ms=now_ms, checked=checked)


def write_open(broker: Broker, topic: str, producer_id: int, *, age_ms: int, epoch: int = 0) -> None:
    """A batch of an open transaction in partition 0."""
    now_ms = broker.now_ms()
    log, record = broker.partition(topic, 0).log, Record(0, now_ms - age_ms, None, b"v")
    guard = log.producer_state().start_verification(producer_id, 0, epoch, supports_epoch_bump=False, now_ms=now_ms)
    batch = encode_batch(
        [record], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True
    )
    log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0, now_ms=now_ms, guard=guard)
