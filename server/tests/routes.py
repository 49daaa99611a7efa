"""Routes of handlers that a test brings along."""

from collections.abc import Mapping
from typing import Any

from ottla.server.dispatch.apis import Api
from ottla.server.dispatch.dispatch import Code, FastPath, Handler, Route, response_class_of
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
