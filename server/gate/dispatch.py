"""Which function answers which request: the one table that routing, version checks and ApiVersions are derived from.

A handler is a function `(request, context) -> response`, declared with `@handles(HeartbeatRequest)` in
`server/handlers/<api>.py`. It may be a plain function (preferred where nothing has to be waited for), a plain function
that sometimes returns a coroutine, or an async function. `ottla.wire.answers` lists the forms of an answer.

Buffers inside a request (record batches) are views of the connection's receive buffer. They are valid until the handler
function returns, so an `async def`, whose body starts later, never sees them valid, and a plain function that returns a
coroutine copies what the coroutine needs.

A broker is asked a dozen of its seventy APIs, so the module of a handler, its message and all that it imports are loaded
when its API is first asked for: by the thread that makes the call (`server/net/calls.py`). What has to be known before
that, such as the versions, is in an index (`route_index.py`) that the last complete load has left behind.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ottla.server.gate import route_index
from ottla.server.gate.request_times import count, no_times
from ottla.wire.answers import Answer
from ottla.wire.api_names import UNDECLARED
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.schema import Message, VersionRange

if TYPE_CHECKING:
    from ottla.server.gate.context import RequestContext

Handler = Callable[[Any, "RequestContext[Any]"], Answer[Any]]
HandlerT = TypeVar("HandlerT", bound=Callable[..., Answer[Any]])


class AtOnce(Protocol):
    """What answers the ordinary requests of an API from the bytes of their bodies. Where it says None nothing was done, and the
    request is to be decoded and handled. Bodies of answers come in pieces."""

    def prepare(self, buffer: Any, position: int, end: int, context: RequestContext[Any], walk: Any = ..., /) -> Any:
        """What the request in `buffer[position:end]` asks for. `walk` does what `walk_stored` does, or raises."""

    def follow(self, before: Any, buffer: Any, position: int, end: int, context: RequestContext[Any], /) -> Any:
        """The same of one that came behind another and differs little; None also where it has to wait for that one's answer."""

    def carry_out(self, prepared: Any, context: RequestContext[Any], /) -> list[Any] | None:
        """The body of the answer."""

    def carry_out_all(self, prepared: Sequence[Any], context: RequestContext[Any], /) -> list[list[Any]] | None:
        """The bodies of the answers to several, each of which follows the one before."""


HANDLERS = "ottla.server.handlers"


ALL_TIMED, STANDS_FOR = 1024, 16
"""So many requests of an api are counted each by the time that it took. From then on every sixteenth is, and counts for sixteen."""


class CloseConnection(Exception):
    """A handler's wish to end the connection without an answer, as Kafka does for acks=0 errors; says why."""


OPTIONS = (
    "abandonable",
    "alone_only",
    "answers_at_length",
    "between_brokers",
    "few_at_once",
    "forwarded",
    "in_cluster_only",
    "long_bytes",
    "pipelined",
    "reads_only",
    "unadvertised",
    "unmetered",
    "with_receiver_only",
)


class Code(NamedTuple):
    """What answers the requests of a route."""

    request_class: type[Message]
    response_class: type[Message]
    handler: Handler
    at_once: Mapping[int, AtOnce] = MappingProxyType({})
    """By the version of the request, for the few APIs that are asked all the time."""


class Route:
    """Everything the connection needs to serve one api key; counters are plain integers read by metrics."""

    __slots__ = (
        *OPTIONS,
        "_code",
        "_load",
        "_waited",
        "api_key",
        "errors",
        "name",
        "request_bytes",
        "request_count",
        "response_bytes",
        "seconds",
        "sparing",
        "times",
        "versions",
    )

    abandonable: bool
    alone_only: bool
    answers_at_length: bool
    between_brokers: bool
    few_at_once: bool
    forwarded: bool
    in_cluster_only: bool
    long_bytes: bool
    pipelined: bool
    reads_only: bool
    unadvertised: bool
    unmetered: bool
    with_receiver_only: bool

    def __init__(
        self, name: str, api_key: int, versions: VersionRange, options: Collection[str], load: Callable[[], Code]
    ) -> None:
        """`name`: Kafka's name of the API, such as `ListOffsets`. `options`: those of `OPTIONS` that are set."""
        self.name = name
        self.api_key = api_key
        self.versions = versions
        for option in OPTIONS:
            setattr(self, option, option in options)
        # A broker that is alone has no others that could ask.
        self.in_cluster_only |= self.between_brokers
        self.unmetered |= self.between_brokers
        self._load = load
        self._code: Code | None = None
        self.request_count = 0
        self.request_bytes = self.response_bytes = 0
        self.seconds = 0.0  # from the moment when a request is read until its answer is there, waits included
        self.times: list[int] = []  # the same by how long each took (`request_times.py`); made with the code
        self.sparing = self._waited = (
            0  # bits of a number of requests: if one of them is set, another one stands for it
        )
        self.errors: dict[int, int] = {}  # answers with an error at their top level, by its code

    @classmethod
    def of(
        cls,
        request_class: type[Message],
        versions: VersionRange,
        handler: Handler,
        prepare: Callable[[], object] = lambda: None,
        at_once: Mapping[int, AtOnce] = MappingProxyType({}),
        **options: bool,
    ) -> Route:
        """The route of a handler that is loaded; `prepare` may load what that needs."""

        def load() -> Code:
            prepare()
            return Code(request_class, response_class_of(request_class), handler, at_once)

        chosen = [name for name, is_set in options.items() if is_set]
        name = request_class.__name__.removesuffix("Request")
        return cls(name, request_class.api_key, versions, chosen, load)

    @property
    def code(self) -> Code:
        """Loaded when somebody first asks; whatever an import raises is raised here, and it is tried again."""
        if self._code is None:
            self._code = self._load()
            self.times = no_times()
        return self._code

    @property
    def request_class(self) -> type[Message]:
        return self.code.request_class

    @property
    def response_class(self) -> type[Message]:
        return self.code.response_class

    @property
    def handler(self) -> Handler:
        return self.code.handler

    def note_time(self, seconds: float, *, is_answered: bool = True) -> None:
        """A request that had to wait took so long, by now; if it is not answered yet, it is counted with what follows."""
        self.seconds += seconds
        if is_answered:
            self._waited += 1
            if not self._waited & self.sparing:
                self.count_time(seconds)

    def count_time(self, seconds: float) -> None:
        """Count how long a request took. Once there are many, whoever calls leaves out those that others stand for."""
        count(self.times, seconds, 1 + self.sparing)
        if self.request_count >= ALL_TIMED:
            self.sparing = STANDS_FOR - 1

    def count_together(self, seconds: float, number: int) -> None:
        """Count requests that together took so long, after they were added to `request_count`."""
        step = 1 + self.sparing
        if counted := self.request_count // step - (self.request_count - number) // step:
            count(self.times, seconds / number, counted * step)
            if self.request_count >= ALL_TIMED:
                self.sparing = STANDS_FOR - 1

    @property
    def declared(self) -> Declared:
        """What can be known of it without its code."""
        options = tuple(option for option in OPTIONS if getattr(self, option))
        return self.name, self.api_key, str(self.versions), options


Declared = tuple[str, int, str, tuple[str, ...]]
ROUTE = "__route__"
"""What a module that has a handler has its route as."""


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
    at_once: Mapping[int, AtOnce] = MappingProxyType({}),
    between_brokers: bool = False,
    feature: str | None = None,
    few_at_once: bool = False,
    forwarded: bool = False,
    in_cluster_only: bool = False,
    long_bytes: bool = False,
    pipelined: bool = False,
    prepare: Callable[[], object] = lambda: None,
    reads_only: bool = False,
    turned_off: Handler | None = None,
    unadvertised: bool = False,
    unmetered: bool = False,
    with_receiver_only: bool = False,
) -> Callable[[HandlerT], HandlerT]:
    """Register the decorated function for `request_class`.

    versions           which versions are advertised and served; None: all that are declared
    abandonable        may be cancelled when its peer has closed the connection: it waits for long before it changes anything
    reads_only         may be cancelled in the same way: it works for long if it is asked for much, and changes nothing
    answers_at_length  its answer is encoded in a thread, if it had to be awaited
    at_once            what is asked first, by version: see `AtOnce`
    few_at_once        two of them are worked on at a time, if they have to be awaited: a few bytes may ask for much work
    forwarded          only the controller carries it out, and other members hand it on; their handler refuses it if that fails
    alone_only         neither served nor advertised by a member of a cluster
    in_cluster_only    neither served nor advertised by a broker that is alone
    long_bytes         its request may be longer than others: it has a field of bytes, and nothing that costs for each of many
    between_brokers    served only by members of a cluster, and only on their inter-broker listener
    unadvertised       no client is told of it
    feature            answered with UNSUPPORTED_VERSION, at its top level, while that feature is not served
    turned_off         the handler while that feature is not served, where the answer says so elsewhere
    unmetered          the time that it takes does not count for the quota of its client, as in Kafka
    prepare            called before the first request, in a thread: loads code that takes long to load, and few brokers need
    pipelined          called while answers to earlier requests of the connection are pending
    with_receiver_only neither served nor advertised by a broker where nobody takes metrics of clients
    """

    def register(handler: HandlerT) -> HandlerT:
        # In the module itself: of one whose import fails nothing stays.
        namespace = vars(sys.modules[handler.__module__])
        assert ROUTE not in namespace, f"two handlers in {handler.__module__}"
        namespace[ROUTE] = Route.of(
            request_class,
            request_class.versions if versions is None else VersionRange.parse(versions),
            _routed(handler, feature, turned_off, is_forwarded=forwarded),
            prepare,
            at_once,
            abandonable=abandonable,
            alone_only=alone_only,
            answers_at_length=answers_at_length,
            between_brokers=between_brokers,
            few_at_once=few_at_once,
            forwarded=forwarded,
            in_cluster_only=in_cluster_only,
            long_bytes=long_bytes,
            pipelined=pipelined,
            reads_only=reads_only,
            unadvertised=unadvertised,
            unmetered=unmetered,
            with_receiver_only=with_receiver_only,
        )
        return handler

    return register


def _routed(handler: Handler, feature: str | None, turned_off: Handler | None, *, is_forwarded: bool) -> Handler:
    """The handler with what its options put before it."""
    if feature is not None:
        handler = _with_level(handler, feature, turned_off)
    return _forwarding(handler) if is_forwarded else handler


def _forwarding(handler: Handler) -> Handler:
    """The handler at the controller; elsewhere the request goes there."""

    def handle(request: Any, context: RequestContext[Any]) -> Answer[Any]:
        broker = context.broker
        # Whoever hands a request on has looked for the controller. Two that do not know it must not hand it to and fro.
        if context.is_forwarded or not broker.is_in_cluster:
            return handler(request, context)
        answer: Answer[Any] = broker.member.forwarding.answer(handler, request, context)
        return answer

    return handle


def _with_level(handler: Handler, feature: str, turned_off: Handler | None) -> Handler:
    """The handler as it is routed to: an operator can turn off what a feature is about."""

    def handle(request: Any, context: RequestContext[Any]) -> Answer[Any]:
        if context.broker.member.features.is_served(feature):
            return handler(request, context)
        if turned_off is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return turned_off(request, context)

    return handle


@functools.cache
def all_routes() -> dict[int, Route]:
    """The whole table, by api key. Handlers are found by their folder: no list can lack one."""
    table: dict[int, Route] = {}
    for module, declared in route_index.index(HANDLERS, lambda module: _route_in(module).declared).items():
        name, api_key, versions, options = declared
        assert api_key not in table, f"two handlers for {name}"
        load = functools.partial(_load, module, declared)
        table[api_key] = Route(name, api_key, VersionRange.parse(versions), options, load)
    return table


def _load(module: str, declared: Declared) -> Code:
    route = _route_in(module)
    # Clients were told what the index says.
    assert route.declared == declared, f"{module} has changed since this broker started, which has to be started again"
    return route.code


def _route_in(module: str) -> Route:
    route: Route = getattr(importlib.import_module(module), ROUTE)
    return route


def api_name(api_key: int) -> str:
    """Kafka's name of a request, for people: they do not know the numbers."""
    route = all_routes().get(api_key)
    return route.name if route is not None else UNDECLARED.get(api_key, f"of the unknown type {api_key}")


def served_routes(
    *, is_in_cluster: bool, is_between_brokers: bool = True, has_receiver: bool = False
) -> dict[int, Route]:
    """The routes of a broker that is, or is not, a member of a cluster, on a listener that is, or is not, for brokers.

    `has_receiver`: somebody takes metrics of clients.
    """
    return {
        key: route
        for key, route in all_routes().items()
        if not (route.alone_only if is_in_cluster else route.in_cluster_only)
        and (is_between_brokers or not route.between_brokers)
        and (has_receiver or not route.with_receiver_only)
    }


def client_routes(*, is_in_cluster: bool, has_receiver: bool = False) -> dict[int, Route]:
    """What a member's other listeners do with each request: what is for brokers is refused there, and not advertised.

    As Kafka refuses who may not do a ClusterAction.
    """
    served = served_routes(is_in_cluster=is_in_cluster, has_receiver=has_receiver)
    return {key: _refusing(route) if route.between_brokers else route for key, route in served.items()}


def _refusing(route: Route) -> Route:
    def refuse(request: Message, context: RequestContext[Any]) -> None:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    # Without `between_brokers`: on this listener the limits and the waits of clients hold for such a request.
    return Route(route.name, route.api_key, route.versions, (), lambda: route.code._replace(handler=refuse, at_once={}))
