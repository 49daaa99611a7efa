"""Paths of consumer instances: /consumers of the second version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import re2

from ottla.server.admin.http.routes import Response, is_of_another_site
from ottla.server.rest import admin, formats
from ottla.server.rest.api import NO_CONTENT, V2, Call, RestApi, media_type
from ottla.server.rest.bodies import member, number, parse_object, refuse_unknown
from ottla.server.rest.client.cluster import KafkaCluster, Partition
from ottla.server.rest.client.reading import Committed, committed_of
from ottla.server.rest.errors import Code, RestError, bad_request, partition_not_found, unprocessable
from ottla.server.rest.times import parse_time
from ottla.server.rest.v2.instances import (
    ANSWER_BYTES_MAX,
    REQUEST_TIMEOUT_MAX_S,
    REQUEST_TIMEOUT_S,
    Instance,
    InstanceConfig,
    Instances,
)
from ottla.server.rest.v2.topics import EMBEDDED

_INSTANCE = "/consumers/{}/instances/{}"
_RESETS = ("earliest", "latest", "none")
_CONFIG_MEMBERS = frozenset(
    {
        "id", "name", "format", "auto.offset.reset", "auto.commit.enable", "fetch.min.bytes", "responseMinBytes",
        "consumer.request.timeout.ms", "requestWaitMs",
    }
)  # fmt: skip
FETCH_BYTES_MIN_MAX = 10_000_000
PARTITIONS_MAX = 20_000
"""Partitions in one request."""


class Consumers:
    """Handlers of /consumers."""

    def __init__(self, cluster: KafkaCluster, instances: Instances) -> None:
        self._cluster, self._instances = cluster, instances

    def add_to(self, api: RestApi) -> None:
        api.add("POST", "/consumers/{}", self._create)
        api.add("DELETE", _INSTANCE, self._delete)
        api.add("POST", f"{_INSTANCE}/subscription", self._subscribe)
        api.add("GET", f"{_INSTANCE}/subscription", self._subscription)
        api.add("DELETE", f"{_INSTANCE}/subscription", self._unsubscribe)
        api.add("POST", f"{_INSTANCE}/assignments", self._assign)
        api.add("GET", f"{_INSTANCE}/assignments", self._assignments)
        api.add("GET", f"{_INSTANCE}/records", self._records)
        api.add("POST", f"{_INSTANCE}/offsets", self._commit)
        api.add("GET", f"{_INSTANCE}/offsets", self._committed)
        api.add("POST", f"{_INSTANCE}/positions", self._seek)
        api.add("POST", f"{_INSTANCE}/positions/beginning", self._seek_to_beginning)
        api.add("POST", f"{_INSTANCE}/positions/end", self._seek_to_end)

    def _instance(self, call: Call) -> Instance:
        group, name = call.parts
        return self._instances.find(group, name, call.user)

    # --- the instance

    async def _create(self, call: Call) -> Any:
        [group] = call.parts
        body = _body(call)
        name, config = _config(body)
        if config.kind in formats.WITH_SCHEMA and not self._instances.has_schemas:
            raise formats.no_registry("deserialize")
        instance = self._instances.create(group, name, config, call.user)
        path = f"/consumers/{quote(group, safe='')}/instances/{quote(instance.name, safe='')}"
        return {"instance_id": instance.name, "base_uri": call.base_url + path}

    async def _delete(self, call: Call) -> Any:
        await self._instances.delete(self._instance(call))
        return NO_CONTENT

    # --- what is read

    async def _subscribe(self, call: Call) -> Any:
        instance, body = self._instance(call), _body(call)
        refuse_unknown(body, frozenset({"topics", "topic_pattern"}))
        topics, pattern = member(body, "topics", list), member(body, "topic_pattern", str)
        if topics is not None and not all(isinstance(each, str) for each in topics):
            raise bad_request("topics: a list of strings")
        if pattern is not None:
            try:
                re2.compile(pattern)
            except re2.error as error:
                raise unprocessable(f"topic_pattern: {error}") from None
        if topics is not None or pattern is not None:
            async with instance.lock:
                await instance.subscribe(topics, None if topics is not None else pattern)
        return NO_CONTENT

    async def _subscription(self, call: Call) -> Any:
        instance = self._instance(call)
        if instance.pattern is not None:
            return {"topics": sorted({topic for topic, _ in instance.partitions})}
        return {"topics": instance.topics}

    async def _unsubscribe(self, call: Call) -> Any:
        instance = self._instance(call)
        async with instance.lock:
            await instance.unsubscribe()
        return NO_CONTENT

    async def _assign(self, call: Call) -> Any:
        instance = self._instance(call)
        partitions = _partitions(_body(call))
        async with instance.lock:
            instance.assign(partitions)
        return NO_CONTENT

    async def _assignments(self, call: Call) -> Any:
        return {"partitions": [{"topic": topic, "partition": each} for topic, each in self._instance(call).partitions]}

    async def _records(self, call: Call) -> Any:
        if is_of_another_site(call.request.headers):  # a link, too, would move the position
            raise RestError(403, "Pages of other sites may not read records here.")
        instance = self._instance(call)
        kind, content_type = _wanted_format(call)
        if kind != instance.config.kind:
            message = "The requested embedded data format does not match the deserializer for this consumer instance"
            raise RestError(Code.CONSUMER_FORMAT_MISMATCH, message)
        timeout_ms, bytes_max = _integer(call, "timeout"), _integer(call, "max_bytes")
        timeout_s = instance.config.timeout_s
        if timeout_ms > 0:
            timeout_s = min(timeout_ms / 1000, timeout_s)
        async with instance.lock:
            body = await instance.read(timeout_s, bytes_max if bytes_max > 0 else ANSWER_BYTES_MAX)
        self._instance(call)  # it is kept from the end of the read on
        return Response(body, content_type=content_type)

    # --- offsets

    async def _commit(self, call: Call) -> Any:
        instance, body = self._instance(call), _body(call)
        if not body:
            await instance.commit()
            return []
        offsets = {}
        for each in _entries(body, "offsets"):
            offset = number(each, "offset", 64, is_needed=True)
            offsets[_partition(each)] = Committed(offset + 1, member(each, "metadata", str) or "")
        if offsets:
            await instance.commit(offsets)
        return []

    async def _committed(self, call: Call) -> Any:
        instance, body = self._instance(call), _body(call)
        if not body:
            raise partition_not_found()
        found = await committed_of(self._cluster, instance.group, _partitions(body))
        offsets = [
            {"topic": topic, "partition": each, "offset": told.offset, "metadata": told.metadata}
            for (topic, each), told in sorted(found.items())
        ]
        return {"offsets": offsets}

    async def _seek(self, call: Call) -> Any:
        instance, body = self._instance(call), _body(call)
        refuse_unknown(body, frozenset({"offsets", "timestamps"}))
        offsets = {_partition(each): number(each, "offset", 64, is_needed=True) for each in _entries(body, "offsets")}
        times = {_partition(each): parse_time(each.get("timestamp")) for each in _entries(body, "timestamps")}
        async with instance.lock:
            instance.seek(dict.fromkeys(times, admin.LATEST) | offsets)
            if times:
                found = await admin.offsets_at_times(self._cluster, times)
                # Without a record that new the end is where the next one comes.
                instance.seek({place: each if each >= 0 else admin.LATEST for place, each in found.items()})
        return NO_CONTENT

    async def _seek_to_beginning(self, call: Call) -> Any:
        return await self._seek_all(call, admin.EARLIEST)

    async def _seek_to_end(self, call: Call) -> Any:
        return await self._seek_all(call, admin.LATEST)

    async def _seek_all(self, call: Call, sentinel: int) -> Any:
        instance = self._instance(call)
        partitions = _partitions(_body(call))
        async with instance.lock:
            # Without partitions all are meant, as by Kafka's consumer.
            instance.seek(dict.fromkeys(partitions or instance.partitions, sentinel))
        return NO_CONTENT


# --- requests


def _body(call: Call) -> dict[str, Any]:
    """Parse the body of a request to a consumer instance. Raises RestError."""
    if call.request.body:
        kind = media_type(call.request.headers.get("content-type", ""))
        if kind != V2 and kind not in EMBEDDED:
            raise RestError(Code.UNSUPPORTED_MEDIA_TYPE, "HTTP 415 Unsupported Media Type")
    return parse_object(call.request.body)


def _config(body: dict[str, Any]) -> tuple[str | None, InstanceConfig]:
    """Parse the name and settings of a new consumer instance. Name None: generate one. Raises RestError."""
    refuse_unknown(body, _CONFIG_MEMBERS)
    kind = (member(body, "format", str) or formats.BINARY).lower()
    if kind not in (formats.BINARY, formats.JSON, *formats.WITH_SCHEMA):
        raise unprocessable("Invalid format type.")
    reset = member(body, "auto.offset.reset", str) or "latest"
    if reset not in _RESETS:
        raise RestError(
            Code.INVALID_CONSUMER_CONFIG,
            f"Invalid consumer configuration: Invalid value {reset[:100]} for configuration auto.offset.reset",
        )
    wait_ms = number(_renamed(body, "consumer.request.timeout.ms", "requestWaitMs"), "it", 32)
    timeout_s = REQUEST_TIMEOUT_S if wait_ms is None else min(wait_ms / 1000, REQUEST_TIMEOUT_MAX_S)
    config = InstanceConfig(
        kind=kind, reset=reset, auto_commit=_auto_commit(body), bytes_min=_bytes_min(body), timeout_s=timeout_s
    )
    return member(body, "id", str) or member(body, "name", str), config


def _renamed(body: dict[str, Any], name: str, former: str) -> dict[str, Any]:
    return {"it": body.get(name, body.get(former))}


def _auto_commit(body: dict[str, Any]) -> bool:
    value = body.get("auto.commit.enable")
    text = "true" if value is None else str(value).lower()
    if text not in ("true", "false"):
        raise RestError(
            Code.INVALID_CONSUMER_CONFIG,
            f"Invalid consumer configuration: Invalid value {text[:100]} for configuration enable.auto.commit",
        )
    return text == "true"


def _bytes_min(body: dict[str, Any]) -> int | None:
    value = number(_renamed(body, "fetch.min.bytes", "responseMinBytes"), "it", 32, least=-1 << 31)
    if value is not None and not (value == -1 or 1 <= value <= FETCH_BYTES_MIN_MAX):
        raise RestError(
            Code.INVALID_CONSUMER_CONSTRAINT,
            "Invalid consumer configuration. It does not abide by the constraints: "
            f"Invalid value {value} for configuration fetch.min.bytes: must be -1, or from 1 to {FETCH_BYTES_MIN_MAX}",
        )
    return None if value in (None, -1) else int(value)


def _wanted_format(call: Call) -> tuple[str, str]:
    """Return the embedded format that the client's Accept header names, and the response's content type."""
    accepted = [media_type(each) for each in call.request.headers.get("accept", "").split(",")]
    for each in accepted:
        if each in EMBEDDED:
            return EMBEDDED[each], each
    if V2 in accepted:
        return formats.BINARY, V2
    return formats.BINARY, "application/vnd.kafka.binary.v2+json"


def _integer(call: Call, name: str) -> int:
    text = call.query.get(name, "-1")
    try:
        return int(text) if len(text) < 20 else int("no")
    except ValueError:
        raise RestError(Code.NOT_FOUND, "HTTP 404 Not Found") from None


def _entries(body: dict[str, Any], name: str) -> Sequence[dict[str, Any]]:
    found = member(body, name, list) or []
    if len(found) > PARTITIONS_MAX or not all(isinstance(each, dict) for each in found):
        raise bad_request(f"{name}: a list of at most {PARTITIONS_MAX} objects")
    return found


def _partition(entry: dict[str, Any]) -> Partition:
    topic: str = member(entry, "topic", str, is_needed=True)
    return topic, number(entry, "partition", 32, is_needed=True)


def _partitions(body: dict[str, Any]) -> list[Partition]:
    refuse_unknown(body, frozenset({"partitions"}))
    return [_partition(each) for each in _entries(body, "partitions")]
