"""Filters of requests: by API, client, broker, topic, partition, group, error, and by any field of the request."""

from __future__ import annotations

from typing import Any

from ottla.server.testing.errors import LabError, nearest
from ottla.server.testing.wire_tap.kafka_names import API_KEYS, api_key_of, error_of, field_names, messages_of
from ottla.server.testing.wire_tap.wire_request import WireRequest
from ottla.wire.schema import Struct


class Filter:
    """Condition for requests; every part that is given has to hold."""

    def __init__(
        self,
        api: str | None = None,
        *,
        client_id: str | None = None,
        node: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        error: str | None = None,
        version: int | None = None,
        of_brokers: bool = False,
        **fields: Any,
    ) -> None:
        """`fields`: values of fields of the request, at any depth; a list field holds if it has the value, too.

        Raises LabError for names that Kafka does not have.
        """
        self.api_key = None if api is None else api_key_of(api)
        self.api, self.client_id, self.node = api, client_id, node
        self.topic, self.partition, self.group, self.version = topic, partition, group, version
        self.error = None if error is None else error_of(error).name
        self.of_brokers = of_brokers  # for rules; the tap's requests are chosen by their log
        self.fields = fields
        if fields:
            self._check_fields()

    def _check_fields(self) -> None:
        keys = API_KEYS if self.api_key is None else [self.api_key]
        known = set[str]().union(*(field_names(each.request) for each in map(messages_of, keys) if each is not None))
        for name in self.fields:
            if name not in known:
                raise LabError(
                    f"{self.api or 'No request'} has {'no' if self.api else 'a'} field {name!r}{nearest(name, known)}"
                )

    def matches(self, request: WireRequest) -> bool:
        """True if a request is meant. Requests that cannot be decoded are meant only if their fields do not matter."""
        if self.api_key is not None and request.api_key != self.api_key:
            return False
        if self.client_id is not None and request.client_id != self.client_id:
            return False
        if self.node is not None and request.node_id != self.node:
            return False
        if self.version is not None and request.version != self.version:
            return False
        if self.error is not None and self.error not in request.errors:
            return False
        if self.has_places and not any(self.is_meant(*place) for place in request.places):
            return False
        if self.group is not None and self.group not in request.groups:
            return False
        return self._has_fields(request)

    def is_meant(self, topic: str, partition: int | None) -> bool:
        """True if a partition is meant; `partition`: None for the topic as a whole."""
        return self.topic in (None, topic) and self.partition in (None, partition)

    @property
    def has_places(self) -> bool:
        """True if only some topics or partitions are meant."""
        return self.topic is not None or self.partition is not None

    def _has_fields(self, request: WireRequest) -> bool:
        if not self.fields:
            return True
        try:
            message = request.request
        except LabError:
            return False
        return all(_has_value(message, name, value) for name, value in self.fields.items())

    def __str__(self) -> str:
        parts = {"client_id": self.client_id, "node": self.node, "topic": self.topic, "partition": self.partition}
        parts |= {"group": self.group, "error": self.error, "version": self.version, **self.fields}
        told = [f"{name}={value!r}" for name, value in parts.items() if value is not None]
        return ", ".join([self.api or "any request", *told])


def _has_value(message: Struct, name: str, value: Any) -> bool:
    for each in message.wire_fields:
        found = getattr(message, each)
        if each == name and (_is_same(found, value) or (isinstance(found, list) and value in found)):
            return True
        below = found if isinstance(found, list) else (found,)
        if any(isinstance(part, Struct) and _has_value(part, name, value) for part in below):
            return True
    return False


def _is_same(found: Any, value: Any) -> bool:
    if isinstance(found, bytes) and isinstance(value, str):
        return found == value.encode()
    return bool(found == value)
