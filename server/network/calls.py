"""Calls: the decoder, handler and encoder of an (api key, version), put together when it is first asked for."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

import trio

from ottla.server.dispatch.dispatch import Route, api_name
from ottla.server.imitation import NO_RESTRICTIONS, Restrictions
from ottla.wire.errors import ProtocolViolation, bare
from ottla.wire.schema import holds_records

API_VERSIONS_KEY = 18
THROTTLE_TIME = "throttle_time_ms"

_new_calls = trio.CapacityLimiter(1)  # of its own: disks that hang keep the threads that others share
_envelope = struct.Struct(">ii").pack  # frame size, correlation id
_envelope_flexible = struct.Struct(">iix").pack  # the same with an empty tag section


class Call:
    """Decoder, handler and encoder for one API key and version."""

    __slots__ = (
        "decode",
        "encode",
        "envelope",
        "envelope_bytes",
        "fast_path",
        "flexible",
        "handler",
        "is_plain",
        "response_class",
        "route",
        "starts_with_throttle_time",
        "takes_records",
        "tells_throttle_time",
        "version",
    )

    def __init__(self, route: Route, version: int) -> None:
        # Never for ApiVersions: a client reads that answer before it knows what the broker speaks.
        flexible_answer = version in route.response_class.flexible and route.api_key != API_VERSIONS_KEY
        self.route, self.version = route, version
        self.handler = route.handler
        self.fast_path = route.code.fast_path.get(version)
        self.response_class = route.response_class
        self.decode = route.request_class.decoder(version)
        self.encode = route.response_class.encoder(version)
        self.flexible = version in route.request_class.flexible
        self.envelope: Callable[[int, int], bytes] = _envelope_flexible if flexible_answer else _envelope
        self.envelope_bytes = 5 if flexible_answer else 4  # without the size field
        # Worked out once, because every answer asks.
        self.is_plain = not holds_records(route.response_class)
        self.takes_records = holds_records(route.request_class)
        told = [
            name
            for name, each in route.response_class.wire_fields.items()
            if version in each.version_range and each.tag is None
        ]
        self.tells_throttle_time = THROTTLE_TIME in told
        self.starts_with_throttle_time = told[:1] == [THROTTLE_TIME]

    def decode_large(self, buffer: bytes | bytearray, start: int, end: int) -> Any:
        """Decode a large frame in a thread. The number of elements is limited, except in requests of controllers.

        A ProtocolViolation is returned, not raised: raised across threads, it would keep the decoded objects alive.
        """
        cls = self.route.request_class
        # A controller may name all partitions of a great cluster.
        decode = self.decode if self.route.between_brokers else cls.bounded_decoder(self.version)
        try:
            return decode(buffer, start, end)
        except ProtocolViolation as violation:
            return bare(violation)

    def encoded(self, response: Any) -> list[Any]:
        """Return the body of a response in pieces."""
        parts: list[Any] = []
        self.encode(response, parts.append)
        return parts


async def made_call(route: Route, version: int) -> Call:
    """Return the call for a version that the route supports; its codecs are loaded in a thread, once in a process."""
    if route.is_loaded(version):  # by another broker: a test has many, one after the other
        return Call(route, version)
    return await trio.to_thread.run_sync(Call, route, version, limiter=_new_calls)


class Calls:
    """Table of this broker's calls (see `Call`), each made at its first use. Key: (api key << 16) + version.

    Until `opened` is set, only ApiVersions and requests of other brokers are served. A new member of a cluster knows no
    brokers until the controller names them, and a client that gets an empty list of brokers may never connect again.
    """

    def __init__(
        self,
        routes: dict[int, Route],
        *,
        is_open: bool = True,
        has_older: bool = False,
        restrictions: Restrictions = NO_RESTRICTIONS,
    ) -> None:
        """`has_older`: serve also the older versions that only Kafka 3.9 has. `restrictions` may take versions away."""
        own = {key: route.served(has_older=has_older) for key, route in routes.items()}
        restricted = {key: restrictions.served(key, versions) for key, versions in own.items()}
        self._versions = {key: versions for key, versions in restricted.items() if versions is not None}
        self._routes = {key: route for key, route in routes.items() if key in self._versions}
        self._made: dict[int, Call] = {}
        # The dictionary's own method, because every request needs it.
        self.get = self._made.get
        self.opened = trio.Event()
        if is_open:
            self.opened.set()

    @property
    def routes(self) -> Iterable[Route]:
        """Routes that are served, with their counters."""
        return self._routes.values()

    def find(self, api_key: int, version: int) -> Call | None:
        """Return the call for an API key and version; None if the caller must await `until_open` and `make` first.

        ApiVersions requests of unknown versions get format 0. Raises ProtocolViolation if the request is not served.
        """
        route = self._routes.get(api_key)
        # As in Kafka the connection ends: without a declaration the layout of the header's rest is unknown.
        if route is None:
            raise ProtocolViolation(f"the request {api_name(api_key)} (version {version}) is not served here")
        if version in self._versions[api_key]:
            return self._made.get((api_key << 16) + version)
        if api_key != API_VERSIONS_KEY:
            raise ProtocolViolation(f"{route.name} version {version} is not served")
        # Such a call is not kept, for a peer may name any of 65,000 versions. It is cheap once format 0 is loaded.
        is_made = (API_VERSIONS_KEY << 16) in self._made
        return UnsupportedApiVersions(route, version) if is_made else None

    async def until_open(self, api_key: int) -> None:
        """Wait until clients' requests are served; return immediately for ApiVersions and requests of other brokers."""
        # The controller names the brokers in such a request, and a client may ask for versions while it waits.
        if not (self._routes[api_key].between_brokers or api_key == API_VERSIONS_KEY):
            await self.opened.wait()

    async def make(self, api_key: int, version: int) -> None:
        """Make the call for which `find` returned None. Its codecs are loaded, or generated, in a thread."""
        route = self._routes[api_key]
        # Only ApiVersions comes here so, and it is answered in format 0.
        if api_key == API_VERSIONS_KEY and version not in self._versions[api_key]:
            version = 0
        made = await made_call(route, version)
        # Two connections may ask for the same at once; the call that is in use stays.
        self._made.setdefault((api_key << 16) + version, made)


class UnsupportedApiVersions(Call):
    """Call for an ApiVersions request whose version the broker does not support: the response has format 0.

    For newer versions the header is taken as flexible and the body is not decoded. Negative versions are served alike,
    as in Kafka, but with the header of version 0.
    """

    __slots__ = ()

    def __init__(self, route: Route, version: int) -> None:
        super().__init__(route, 0)
        self.version = version
        self.flexible = version > 0
        self.decode = lambda buffer, start, end: route.request_class()

    def decode_large(self, buffer: bytes | bytearray, start: int, end: int) -> Any:
        return self.decode(buffer, start, end)
