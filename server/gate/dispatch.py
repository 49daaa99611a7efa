"""Which function answers which request: the one table that routing, version checks and ApiVersions are derived from.

A handler is a function `(request, context) -> response`, declared with `@handles(HeartbeatRequest)` in
`server/handlers/<api>.py`. It may be a plain function (preferred where nothing has to be waited for), a plain function
that sometimes returns a coroutine, or an async function. `ottla.wire.answers` lists the forms of an answer.

Buffers inside a request (record batches) are views of the connection's receive buffer. They are valid until the handler
function returns, so an `async def`, whose body starts later, never sees them valid, and a plain function that returns a
coroutine copies what the coroutine needs.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.schema import Message, VersionRange

if TYPE_CHECKING:
    from ottla.server.gate.context import RequestContext

Handler = Callable[[Any, "RequestContext[Any]"], Answer[Any]]
HandlerT = TypeVar("HandlerT", bound=Callable[..., Answer[Any]])


class CloseConnection(Exception):
    """A handler's wish to end the connection without an answer, as Kafka does for acks=0 errors; says why."""


class Route:
    """Everything the connection needs to serve one api key; counters are plain integers read by metrics."""

    __slots__ = (
        "abandonable",
        "alone_only",
        "answers_at_length",
        "api_key",
        "between_brokers",
        "error_count",
        "few_at_once",
        "handler",
        "in_cluster_only",
        "pipelined",
        "reads_only",
        "request_class",
        "request_count",
        "response_class",
        "versions",
    )

    def __init__(
        self,
        request_class: type[Message],
        versions: VersionRange,
        handler: Handler,
        *,
        abandonable: bool = False,
        alone_only: bool = False,
        answers_at_length: bool = False,
        between_brokers: bool = False,
        few_at_once: bool = False,
        in_cluster_only: bool = False,
        pipelined: bool = False,
        reads_only: bool = False,
    ) -> None:
        self.api_key = request_class.api_key
        self.request_class = request_class
        self.response_class: type[Message] = response_class_of(request_class)
        self.versions = versions
        self.handler = handler
        self.abandonable = abandonable
        self.alone_only = alone_only
        self.answers_at_length = answers_at_length
        self.between_brokers = between_brokers
        self.few_at_once = few_at_once
        # A broker that is alone has no others that could ask.
        self.in_cluster_only = in_cluster_only or between_brokers
        self.pipelined = pipelined
        self.reads_only = reads_only
        self.request_count = 0
        self.error_count = 0

    @property
    def name(self) -> str:
        """Kafka's name of the API, such as `ListOffsets`."""
        return self.request_class.__name__.removesuffix("Request")


ROUTES: dict[int, Route] = {}


def response_class_of(request_class: type[Message]) -> type[Message]:
    """The response that is declared beside a request."""
    name = request_class.__name__.removesuffix("Request") + "Response"
    response_class: type[Message] = getattr(sys.modules[request_class.__module__], name)
    return response_class


def handles(
    request_class: type[Message],
    *,
    versions: str | None = None,
    abandonable: bool = False,
    alone_only: bool = False,
    answers_at_length: bool = False,
    between_brokers: bool = False,
    few_at_once: bool = False,
    in_cluster_only: bool = False,
    pipelined: bool = False,
    reads_only: bool = False,
) -> Callable[[HandlerT], HandlerT]:
    """Register the decorated function for `request_class`.

    versions           which versions are advertised and served; None: all that are declared
    abandonable        may be cancelled while it waits when its peer has closed the connection: it may wait for long, and
                       changes nothing before it has waited
    reads_only         may be cancelled in the same way: it works for long if it is asked for much, and changes nothing
    answers_at_length  its answer is encoded in a thread, if it had to be awaited
    few_at_once        two of them are worked on at a time, if they have to be awaited: a few bytes may ask for a long answer,
                       and the work on it waits for nobody
    alone_only         neither served nor advertised by a member of a cluster
    in_cluster_only    neither served nor advertised by a broker that is alone
    between_brokers    served only by members of a cluster, and only on their inter-broker listener
    pipelined          called while answers to earlier requests of the connection are pending
    """

    def register(handler: HandlerT) -> HandlerT:
        # The second would replace the first in silence.
        assert request_class.api_key not in ROUTES, f"two handlers for {request_class.__name__}"
        served = request_class.versions if versions is None else VersionRange.parse(versions)
        ROUTES[request_class.api_key] = Route(
            request_class,
            served,
            handler,
            abandonable=abandonable,
            alone_only=alone_only,
            answers_at_length=answers_at_length,
            between_brokers=between_brokers,
            few_at_once=few_at_once,
            in_cluster_only=in_cluster_only,
            pipelined=pipelined,
            reads_only=reads_only,
        )
        return handler

    return register


@functools.cache
def load_handlers() -> dict[int, Route]:
    """Import every module of `ottla.server.handlers` and return the finished table."""
    # Not at the top, because handlers import this module. They are found by their folder: no list can lack one.
    import ottla.server.handlers as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return ROUTES


def served_routes(*, is_in_cluster: bool, is_between_brokers: bool = True) -> dict[int, Route]:
    """The routes of a broker that is, or is not, a member of a cluster, on a listener that is, or is not, for brokers."""
    return {
        key: route
        for key, route in load_handlers().items()
        if not (route.alone_only if is_in_cluster else route.in_cluster_only)
        and (is_between_brokers or not route.between_brokers)
    }


def client_routes(*, is_in_cluster: bool) -> dict[int, Route]:
    """What a member's other listeners do with each request: what is for brokers is refused there, and not advertised.

    As Kafka refuses who may not do a ClusterAction.
    """
    served = served_routes(is_in_cluster=is_in_cluster)
    return {key: _refusing(route) if route.between_brokers else route for key, route in served.items()}


def _refusing(route: Route) -> Route:
    def refuse(request: Message, context: RequestContext[Any]) -> None:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    # Without `between_brokers`: on this listener the limits and the waits of clients hold for such a request.
    return Route(route.request_class, route.versions, refuse)
