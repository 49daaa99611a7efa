"""Table of request handlers, from which routing, version checks and ApiVersions are derived.

A handler is a function `(request, context) -> response`, declared with `@handles(HeartbeatRequest)` in
`server/api/handlers/`. It may be a plain function (preferred where nothing has to be waited for), a plain function
that sometimes returns a coroutine, or an async function. `ottla.wire.answers` lists the forms of an answer.

Buffers inside a request (record batches) are views of the connection's receive buffer. They are valid until the handler
function returns. The body of an `async def` starts after that, so it may not use them; a plain function that returns a
coroutine copies the data that the coroutine needs.

A broker is asked a dozen of its seventy APIs, so the module of a handler, its message and all that it imports are loaded
when its API is first asked for: by the thread that makes the call (`server/network/calls.py`). What has to be known before
that, such as the versions, is in a table (`apis.py`).
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import frexp
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.server.dispatch.apis import APIS, NOT_SERVED, Api
from ottla.wire.answers import Answer
from ottla.wire.codecs import is_loaded
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.server.dispatch.context import RequestContext

Handler = Callable[[Any, "RequestContext[Any]"], Answer[Any]]
HandlerT = TypeVar("HandlerT", bound=Callable[..., Answer[Any]])

FastPath = Callable[[Any, int, int, "RequestContext[Any]"], "list[Any] | None"]
"""Answers ordinary requests of an API: (buffer, start and end of the request's body, context) -> pieces of the answer's body.

None: nothing was done, and the request is to be decoded and handled.
"""

HANDLERS = "ottla.server.api.handlers"

ALL_TIMED, STANDS_FOR = 1024, 16
"""Requests of an api whose times are all counted. From then on every sixteenth is, and counts for sixteen."""


class CloseConnection(Exception):
    """Error raised by a handler to close the connection without a response, as Kafka does for errors with acks=0."""


class Code(NamedTuple):
    """Message classes, handler and fast paths of a route."""

    request_class: type[Message]
    response_class: type[Message]
    handler: Handler
    fast_path: Mapping[int, FastPath] = MappingProxyType({})
    """Fast paths by the version of the request, for the few APIs that clients call all the time."""


class Route(Api):
    """An API that this broker serves, with its code (imported at first use) and its counters for metrics."""

    def __init__(self, api: Api, load: Callable[[], Code]) -> None:
        super().__init__(**vars(api))
        self._load = load
        self._code: Code | None = None
        self.request_count = 0
        self.request_bytes = self.response_bytes = 0
        self.seconds = 0.0  # from the moment when a request is read until its answer is there, waits included
        self.times: list[int] = []  # the same by how long each took (`count`); made with the code
        # Bits of a number of requests: if one of them is set, another one stands for it.
        self.sparing = self._waited = 0
        self.errors: dict[int, int] = {}  # answers with an error at their top level, by its code

    @property
    def code(self) -> Code:
        """Code of the handler, imported at first use. An import error is raised; the next use tries again."""
        if self._code is None:
            self._code = self._load()
            self.times = no_times()
        return self._code

    def is_loaded(self, version: int) -> bool:
        """Return True if this process has loaded the handler's code and the codecs of a version."""
        code = self._code
        return (
            code is not None
            and is_loaded(code.request_class, version, "decode")
            and is_loaded(code.response_class, version, "encode")
        )

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
        """Add to the time of a request that had to wait.

        `is_answered` is False if a later call will add more time of this request.
        """
        self.seconds += seconds
        if is_answered:
            self._waited += 1
            if not self._waited & self.sparing:
                self.count_time(seconds)

    def count_time(self, seconds: float) -> None:
        """Add a request's time to the histogram.

        After ALL_TIMED requests the caller passes only a sample, and each call counts for STANDS_FOR requests.
        """
        count(self.times, seconds, 1 + self.sparing)
        if self.request_count >= ALL_TIMED:
            self.sparing = STANDS_FOR - 1


CODE = "__code_of_handlers__"
"""Name under which a module of handlers has the `Code` of each, by api key."""


def response_class_of(request_class: type[Message]) -> type[Message]:
    """Return the response class that is declared in the module of a request class."""
    name = request_class.__name__.removesuffix("Request") + "Response"
    response_class: type[Message] = getattr(sys.modules[request_class.__module__], name)
    return response_class


def handles(
    request_class: type[Message],
    *,
    fast_path: Mapping[int, FastPath] = MappingProxyType({}),
    feature: str | None = None,
    turned_off: Handler | None = None,
) -> Callable[[HandlerT], HandlerT]:
    """Register the decorated function as the handler of `request_class`; `apis.py` says where the request is served.

    fast_path    functions by version that are tried before the handler; see `FastPath`
    feature      feature that the request needs; while it is off, the request gets UNSUPPORTED_VERSION at its top level
    turned_off   handler to use while the feature is off, for responses without an error code at their top level
    """

    def register(handler: HandlerT) -> HandlerT:
        # In the module itself: of one whose import fails nothing stays.
        codes = vars(sys.modules[handler.__module__]).setdefault(CODE, {})
        assert request_class.api_key not in codes, f"two handlers of {request_class.__name__}"
        served: Handler = handler if feature is None else _with_level(handler, feature, turned_off)
        codes[request_class.api_key] = Code(request_class, response_class_of(request_class), served, fast_path)
        return handler

    return register


def _forwarding(handler: Handler) -> Handler:
    """Return a handler that forwards requests to the controller, and calls `handler` at the controller itself."""

    def handle(request: Any, context: RequestContext[Any]) -> Answer[Any]:
        broker = context.broker
        # The broker that forwards a request has looked for the controller. Two that do not know it must not hand it to and fro.
        if context.is_forwarded or not broker.is_in_cluster:
            return handler(request, context)
        answer: Answer[Any] = broker.member.forwarding.answer(handler, request, context)
        return answer

    return handle


def _with_level(handler: Handler, feature: str, turned_off: Handler | None) -> Handler:
    """Return a handler that calls `handler` only while the feature is on; see `handles`."""

    def handle(request: Any, context: RequestContext[Any]) -> Answer[Any]:
        if context.broker.member.features.is_served(feature):
            return handler(request, context)
        if turned_off is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return turned_off(request, context)

    return handle


@functools.cache
def all_routes() -> dict[int, Route]:
    """Return the routes of all APIs, by api key."""
    return {api.api_key: Route(api, functools.partial(load, api)) for api in APIS}


def load(api: Api) -> Code:
    """Import an API's handler; return its code."""
    code: Code = getattr(importlib.import_module(f"{HANDLERS}.{api.module}"), CODE)[api.api_key]
    return code._replace(handler=_forwarding(code.handler)) if api.forwarded else code


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API for messages and log lines."""
    route = all_routes().get(api_key)
    return route.name if route is not None else NOT_SERVED.get(api_key, f"of the unknown type {api_key}")


def served_routes(
    *, is_in_cluster: bool, is_between_brokers: bool = True, has_receiver: bool = False
) -> dict[int, Route]:
    """Return the routes, by API key, that a broker serves in a cluster or alone.

    `is_between_brokers` is False for client listeners, True for inter-broker listeners.
    `has_receiver` is True if this broker has a receiver for clients' metrics (KIP-714).
    """
    return {
        key: route
        for key, route in all_routes().items()
        if not (route.alone_only if is_in_cluster else route.in_cluster_only)
        and (is_between_brokers or not route.between_brokers)
        and (has_receiver or not route.with_receiver_only)
    }


def client_routes(*, is_in_cluster: bool, has_receiver: bool = False) -> dict[int, Route]:
    """Return the routes of a cluster member's client listeners, by API key.

    Such listeners neither serve nor advertise requests between brokers. Requests between brokers get
    CLUSTER_AUTHORIZATION_FAILED there, as Kafka answers clients without the right to ClusterAction.
    """
    served = served_routes(is_in_cluster=is_in_cluster, has_receiver=has_receiver)
    return {key: _refusing(route) if route.between_brokers else route for key, route in served.items()}


def _refusing(route: Route) -> Route:
    def refuse(request: Message, context: RequestContext[Any]) -> None:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    # Without `between_brokers`: on this listener the limits and the waits of clients hold for such a request.
    api = Api(route.name, route.api_key, route.versions, route.module)
    return Route(api, lambda: route.code._replace(handler=refuse, fast_path={}))


# ---------------------------------------------------------------------- latencies

# The buckets are log-linear. Each octave, from a power of two seconds to the next, has eight of the same width, so that a quantile
# read off them is wrong by some percent at most. They begin at half a microsecond and end after 34 years: whatever is measured
# has a bucket. `math.frexp` gives the octave and the place in it. A call takes half a microsecond to some, by what the caches hold,
# so that of very many requests not each is counted (`Route.count_time`).

TINY_S = 2.0**-21  # is added to what is measured, so that the logarithm of nothing is never asked for
OFFSET = 152
"""Offset that makes the index of TINY_S zero: its exponent is -20, and the eighths of its octave begin at 8."""

PER_OCTAVE = 8
_FIRST_EXPONENT = -20
BUCKETS = 51 * PER_OCTAVE


def no_times() -> list[int]:
    """Return an empty histogram."""
    return [0] * BUCKETS


def count(times: list[int], seconds: float, weight: int = 1) -> None:
    """Add a duration in seconds to a histogram, `weight` times."""
    mantissa, exponent = frexp(seconds + TINY_S)
    times[(exponent << 3) + int(mantissa * 16) + OFFSET] += weight


def upper_end(index: int) -> float:
    """Return the upper end in seconds of the histogram bucket at `index`; the next bucket begins there."""
    octave, eighth = divmod(index, PER_OCTAVE)
    end: float = (9 + eighth) / 16 * 2.0 ** (octave + _FIRST_EXPONENT)
    return end


def shorter_than(times: Sequence[int], exponents: Sequence[int]) -> list[int]:
    """Return, for each exponent, the number of requests that took less than 2 ** exponent seconds."""
    counted = list(accumulate(times, initial=0))
    return [counted[(exponent - _FIRST_EXPONENT + 1) * PER_OCTAVE] for exponent in exponents]


def quantiles(times: Sequence[int], shares: Sequence[float]) -> Iterator[float]:
    """Yield the quantiles in seconds for ascending `shares` (0 to 1). The histogram must not be empty."""
    total, counted, index = sum(times), 0, 0
    for share in shares:
        wanted = share * total
        while counted + times[index] < wanted or not times[index]:
            counted += times[index]
            index += 1
        begin = upper_end(index - 1) if index else 0.0
        yield begin + (upper_end(index) - begin) * max(0.0, wanted - counted) / times[index]
