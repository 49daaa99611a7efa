"""Requests to the console: authorization, parameters, paging, and calls of the broker's handlers.

Access: without a token for everybody who reaches the console, as long as it shows no more than a Kafka client on this machine could read
anyway: the endpoint is bound to loopback, there is no authorizer, some listener takes clients without login and certificate, and the
operator has not chosen a token. Otherwise only with the token, or with a name and a password of `http.console.users`. Both let one see everything. With
`http.console.write` the token's owner changes what `http.console.principal` may change by the authorizer's rules, without that setting
everything; a user changes what User:NAME may change.

Behind a proxy on this machine everybody seems to be here. So a request that says it was forwarded needs the token, too.

A change needs the token in any case. If the console is open, its own page contains the token, which pages of other sites
cannot read. That is one more bar beside the `Guard` of `server/admin/http/routes.py`, which comes first.
"""

from __future__ import annotations

import hmac
import re
import secrets
import shlex
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from ipaddress import ip_address
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import trio

from ottla.replication.cluster.peers import PeerUnavailable
from ottla.server.admin.http.basic_authentication import authenticated
from ottla.server.admin.http.routes import Refused, Request
from ottla.server.config.server_config import parse_console_users
from ottla.server.dispatch.access import CLUSTER_NAME, AclOperation, ResourceType, require
from ottla.server.dispatch.context import THIS_BROKER, RequestContext
from ottla.server.dispatch.dispatch import CloseConnection, all_routes
from ottla.wire.answers import EncodedAnswer, PendingAnswer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.foreign_json import parse_json

if TYPE_CHECKING:
    from ottla.server.admin.http.routes import PacedTimeSlice
    from ottla.server.broker import Broker
    from ottla.wire.schema import Message

_SCHEME = "bearer "
_CHALLENGE = (("WWW-Authenticate", "Bearer"),)
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""Headers that proxies add, most of them unasked."""


class Access:
    """Access rules of the console, and its token. `is_open`: reading requires no token."""

    def __init__(
        self,
        token: str | None,
        *,
        is_open: bool,
        may_write: bool,
        passwords: Mapping[str, str] | None = None,
        principal: str | None = None,
    ) -> None:
        """`passwords`: by user name. `principal`: as which the token's owner makes changes; None: with all rights."""
        self._passwords = {name: password.encode() for name, password in (passwords or {}).items()}
        self._principal = principal
        self.token = token or secrets.token_urlsafe(24)
        self.is_generated = token is None
        self.is_open, self.may_write = is_open, may_write

    @classmethod
    def of(cls, broker: Broker) -> Access:
        """Make the access rules from the broker's settings. The broker's HTTP address must be known."""
        config = broker.config
        assert broker.http_address is not None
        takes_anybody = any(each.security_protocol == "PLAINTEXT" for each in config.listeners)
        is_open = ip_address(broker.http_address[0]).is_loopback and broker.authorizer is None and takes_anybody
        token, users = config.http.http_console_token, parse_console_users(config.http.http_console_users or "")
        return cls(
            token,
            is_open=is_open and token is None and not users,
            may_write=config.http.http_console_write,
            passwords=users,
            principal=config.http.http_console_principal,
        )

    def check(self, request: Request) -> None:
        """Raise Refused if the request needs the console's token and does not have it."""
        is_forwarded = any(each in request.headers for each in _FORWARDED)
        if not (request.method in ("GET", "HEAD") and self.is_open and not is_forwarded):
            self.check_token(request)

    def user_of(self, request: Request) -> str | None:
        """Return the name with which a request is logged in; None: it has no name and password, or wrong ones."""
        return authenticated(request, self._passwords.get) if self._passwords else None

    def principal_of(self, request: Request) -> str | None:
        """Return the principal as which an allowed request makes changes; None: with all rights."""
        user = self.user_of(request)
        return self._principal if user is None else f"User:{user}"

    def check_token(self, request: Request) -> None:
        """Raise Refused if the request has neither the console's token nor the login of a user."""
        if self.user_of(request) is not None:
            return
        given = request.headers.get("authorization", "")
        is_bearer = given[: len(_SCHEME)].lower() == _SCHEME
        # In constant time, which does not tell how much of the token is right.
        if not is_bearer or not hmac.compare_digest(
            given[len(_SCHEME) :].encode("utf-8", "replace"), self.token.encode()
        ):
            raise Refused(
                401, "The console asks for its token, which the broker's start has told, or for a login.", _CHALLENGE
            )


_NUMBER = re.compile(r"-?[0-9]{1,19}")
TEXT_LENGTH_MAX = 1_000
LONG_MAX = (1 << 63) - 1


def text(request: Request, name: str, default: str | None = None) -> str:
    """Return the text parameter `name`. Raises Refused if it is missing and there is no default."""
    given = request.query.get(name, default)
    if given is None:
        raise Refused(400, f"The parameter {name} is missing.")
    if len(given) > TEXT_LENGTH_MAX:
        raise Refused(400, f"The parameter {name} is longer than {TEXT_LENGTH_MAX} characters.")
    return given


def number(request: Request, name: str, default: int | None, minimum: int = 0, maximum: int = LONG_MAX) -> int:
    """Return the integer parameter `name`. Raises Refused if it is out of bounds, or missing without a default."""
    given = request.query.get(name)
    if given is None and default is not None:
        return default
    given = text(request, name)
    if not _NUMBER.fullmatch(given) or not minimum <= int(given) <= maximum:
        raise Refused(400, f"The parameter {name} must be a whole number from {minimum} to {maximum}.")
    return int(given)


def posted(request: Request) -> Mapping[str, Any]:
    """Parse the request's body, which must be a JSON object. Raises Refused."""
    try:
        body = parse_json(request.body)
    except ValueError:
        raise Refused(400, "The body is no JSON.") from None
    if not isinstance(body, dict):
        raise Refused(400, "The body must be a JSON object.")
    return body


TEXT_BYTES_MAX = (1 << 15) - 1  # of a string in Kafka's protocol


def body_text(body: Mapping[str, Any], name: str, length_max: int = TEXT_BYTES_MAX) -> str:
    """Read a text from a request's body. Raises Refused if it is missing, too long for Kafka clients, or not UTF-8."""
    value = body.get(name)
    if not isinstance(value, str):
        raise Refused(400, f"{name} must be a text.")
    try:
        if len(value.encode()) > length_max:
            raise Refused(400, f"{name} is longer than {length_max} bytes.")
    except ValueError:  # a lone surrogate, which JSON can spell
        raise Refused(400, f"{name} is no UTF-8.") from None
    return value


def body_number(
    body: Mapping[str, Any], name: str, default: int | None, minimum: int = 0, maximum: int = (1 << 31) - 1
) -> int:
    """Read a whole number from a request's body; `default` if it is null or missing. Raises Refused."""
    value = body.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or not minimum <= value <= maximum:
        raise Refused(400, f"{name} must be a whole number from {minimum} to {maximum}.")
    return value


SORTED_AT_ONCE = 1_000
PLACE_LENGTH_MAX = 500
T = TypeVar("T")


class Wanted(NamedTuple):
    """Parameters of a request that asks for one page of a sorted list."""

    after: str
    """Name before the page."""
    contains: str
    """Text that names have to contain, in lower case."""

    @classmethod
    def by(cls, request: Request) -> Wanted:
        """Read the parameters from a request."""
        return cls(text(request, "after", ""), text(request, "contains", "").lower())


async def first_page(
    everything: Iterable[T], name_of: Callable[[T], str], wanted: Wanted, size: int, time_slice: PacedTimeSlice
) -> tuple[list[T], str | None]:
    """Return a page's items, sorted by name, and the name after which the next page begins; None: no next page.

    The search runs in time slices.
    """

    def place_of(each: T) -> str:
        return _place(name_of(each))

    first: list[T] = []
    for each in everything:
        await time_slice.yield_if_over()
        name = name_of(each)
        if wanted.after < _place(name) and wanted.contains in name.lower():
            first.append(each)
        # There may be a million, which are not sorted in one step.
        if len(first) > max(size, SORTED_AT_ONCE):
            first = sorted(first, key=place_of)[: size + 1]
    first = sorted(first, key=place_of)[: size + 1]
    page = first[:size]
    return page, place_of(page[-1]) if len(first) > size else None


def _place(name: str) -> str:
    """Return the sort key of a name: the name, or the beginning of a very long one with its digest.

    It is the next page's parameter `after`, and has to fit into the target of a request in any script.
    """
    if len(name) <= PLACE_LENGTH_MAX:
        return name
    return name[:PLACE_LENGTH_MAX] + sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


CLIENT_ID = "ottla-console"

_loading = trio.CapacityLimiter(1)  # of modules of handlers, which an import holds for itself anyway


async def ask(broker: Broker, request: Message, version: int) -> Any:
    """Call the handler of a Kafka request with all rights; return the response. Raises Refused if the handler fails."""
    return await _called(broker, request, version, THIS_BROKER, "console")


CONTROLLER_S = 30.0


class _Actor(NamedTuple):
    """Principal of a change, and the address from which it is made."""

    principal: str
    host: str


_acting: ContextVar[_Actor | None] = ContextVar("who makes a change", default=None)


@contextmanager
def acting(principal: str | None, address: str) -> Iterator[None]:
    """Make the changes of this block as a principal (None: with all rights) that comes from an address."""
    before = _acting.set(None if principal is None else _Actor(principal, f"/{address}"))
    try:
        yield
    finally:
        _acting.reset(before)


async def change(broker: Broker, request: Message, version: int | None = None) -> Any:
    """Call the handler of a request that changes something, as the principal of the enclosing `acting`.

    `version` None: the latest. Raises Refused if the handler fails.
    """
    version = request.versions.last if version is None else version
    actor = _acting.get()
    if actor is not None:
        return await _called(broker, request, version, *actor)
    if all_routes()[request.api_key].forwarded and broker.is_in_cluster and broker.member.controller is None:
        try:
            return await broker.member.ask_controller(request, version, timeout_s=CONTROLLER_S)
        except PeerUnavailable as error:
            raise Refused(503, f"The controller cannot be asked: {error}.") from None
    return await _called(broker, request, version, THIS_BROKER, "console")


def check_may_alter_cluster(broker: Broker) -> None:
    """Raise KafkaError if the principal of the enclosing `acting` may not alter the cluster."""
    actor = _acting.get()
    if actor is not None:
        context = RequestContext(broker, principal=actor.principal, client_host=actor.host)
        require(context, AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)


async def _called(broker: Broker, request: Message, version: int, principal: str, client_host: str) -> Any:
    route = all_routes()[request.api_key]
    await trio.to_thread.run_sync(lambda: route.code, limiter=_loading)
    context = RequestContext(
        broker,
        api_version=version,
        client_id=CLIENT_ID,
        client_host=client_host,
        principal=principal,
        now_ms=broker.now_ms(),
    )
    try:
        answer = route.handler(request, context)
        if isinstance(answer, Coroutine):
            answer = await answer
        if isinstance(answer, PendingAnswer):
            answer = await _when_ready(answer)
    except KafkaError as error:
        raise refusal(error.code, error.message) from None
    except CloseConnection as reason:
        raise Refused(409, str(reason)) from None
    if isinstance(answer, EncodedAnswer):
        return await trio.to_thread.run_sync(route.response_class.decode, answer.body, version)
    return answer


def check_error(code: int, message: str | None = None) -> None:
    """Raise Refused if a response has an error."""
    if code:
        raise refusal(code, message)


USUAL_ADDRESS = "localhost:9092"

Option = str | tuple[str, str]
"""Option of a command, or an option with its value."""


def done(
    broker: Broker, sentence: str, command: str, names: Iterable[str] = (), options: Iterable[Option] = ()
) -> dict[str, str]:
    """Return the answer to a change: a sentence that says what was done, and a command that does the same."""
    words = [word for each in options for word in ([each] if isinstance(each, str) else _option(*each))]
    endpoints = broker.cluster.brokers[broker.node_id].endpoints if broker.node_id in broker.cluster.brokers else {}
    address = next((f"{each.host}:{each.port}" for each in endpoints.values()), USUAL_ADDRESS)
    words += [] if address == USUAL_ADDRESS else ["-b", address]
    # A name may look like an option.
    places = [*words, "--", *names] if any(each.startswith("-") for each in names) else [*names, *words]
    return {"done": sentence, "command": shlex.join(["ottla", *command.split(), *places])}


LISTED_MAX = 10


def first_of(places: Collection[str], separator: str) -> str:
    """Join the first LISTED_MAX places for a sentence, with the number of those that are left out."""
    left_out = len(places) - LISTED_MAX
    return separator.join(islice(places, LISTED_MAX)) + (f" and {left_out} more" if left_out > 0 else "")


def _option(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


async def _when_ready(answer: PendingAnswer[Any]) -> Any:
    ready = trio.Event()
    answer.on_ready = ready.set
    try:
        if not answer.is_ready:
            await ready.wait()
    except trio.Cancelled:
        answer.abandon()
        raise
    return answer.response()


def refusal(code: int, message: str | None = None) -> Refused:
    """Make the HTTP refusal that reports a Kafka error."""
    error = ErrorCode.of(code)
    status = 404 if error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND) else 409
    return Refused(status, f"{error.name}: {message or error.message}")
