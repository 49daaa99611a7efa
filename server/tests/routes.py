"""Routes of handlers that a test brings along, and the listener of connections that use them."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ottla.server.dispatch.apis import Api
from ottla.server.dispatch.dispatch import Code, FastPath, Handler, Route, response_class_of
from ottla.server.network.calls import Calls
from ottla.server.network.inbox import ReceiveBuffers
from ottla.server.network.listener_context import Complaints
from ottla.server.network.readiness import Readiness, serve_in_task
from ottla.server.security.quotas.client_quotas import ClientQuotas
from ottla.wire.schema import Message, VersionRange


def route_of(
    request_class: type[Message],
    versions: VersionRange,
    handler: Handler,
    fast_path: Mapping[int, FastPath] | None = None,
    **options: Any,
) -> Route:
    """Route the requests of a class to a handler; `options` are those of `Api`."""
    name = request_class.__name__.removesuffix("Request")
    code = Code(request_class, response_class_of(request_class), handler, fast_path or {})
    return Route(Api(name, request_class.api_key, versions, "", **options), lambda: code)


INSIDE_THE_WAIT, IN_THE_TASK = "inside the loop's wait", "waiting in the task"


def readiness_of(way: str) -> Any:
    """The readiness of a listener that serves its connections in this way."""
    readiness = Readiness()
    if way == INSIDE_THE_WAIT:
        return readiness
    return SimpleNamespace(
        serve=serve_in_task, is_inside_the_wait=False, turn_end=readiness.turn_end, work=readiness.work
    )


def listener_of(calls: Calls | None, readiness: Any, **others: Any) -> Any:
    """A listener in plaintext, as its connections see it; `others` are what a test has it have besides."""
    usual = {
        "name": "PLAINTEXT",
        "broker": None,
        "buffers": ReceiveBuffers(),
        "frame_bytes_max": 1 << 23,
        "complaints": Complaints("PLAINTEXT"),
        "security_protocol": "PLAINTEXT",
        "sasl": None,
        "quotas": ClientQuotas(),
    }
    return SimpleNamespace(calls=calls, readiness=readiness, **usual | others)
