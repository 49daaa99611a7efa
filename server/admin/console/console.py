"""Paths of the console put together: the static files of its page, the log's last lines, and its views.

Browsers keep the files and ask by ETag whether they are still the same.

Log lines hold data that no Kafka client may see, such as addresses of other clients. So reading them needs the token even
if the console is open. They are kept from the start of the endpoint on, LINES_KEPT of them, cut to LINE_LENGTH_MAX.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.server.admin.console import requests
from ottla.server.admin.console.access_view import AccessView
from ottla.server.admin.console.cluster_view import ClusterView
from ottla.server.admin.console.group_changes import GroupChanges
from ottla.server.admin.console.groups_view import GroupsView
from ottla.server.admin.console.history import History
from ottla.server.admin.console.learning import Learning
from ottla.server.admin.console.records import Records
from ottla.server.admin.console.requests import Access, refusal
from ottla.server.admin.console.schemas_view import SchemasView
from ottla.server.admin.console.settings_view import BODY_BYTES_MAX, SettingsView, Writing
from ottla.server.admin.console.topic_changes import TopicChanges
from ottla.server.admin.console.transactions_view import TransactionsView
from ottla.server.admin.console.why_view import WhyView
from ottla.server.admin.http.metrics.process import BOUNDS
from ottla.server.admin.http.routes import HTML, JSON, Refused, Request, Response
from ottla.server.serving_state import NotServing
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.server.admin.http.metrics.page import Meters
    from ottla.server.admin.http.metrics.process import LoopLag
    from ottla.server.admin.http.routes import Handler, Pace, Routes
    from ottla.server.broker import Broker

FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": HTML,
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


class _File(NamedTuple):
    content: bytes
    content_type: str
    etag: str


class Pages:
    """Static files of the console, loaded at the first request. Unknown names are answered with 404."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}

    def add_to(self, routes: Routes) -> None:
        """Register the console's page at /, and its files below /console/."""
        routes.get("/", lambda request: self._answer("index.html", request))
        routes.get("/console/", lambda request: self._answer(request.path.removeprefix("/console/"), request))

    async def _answer(self, name: str, request: Request) -> Response:
        if not self._files:
            self._files = await trio.to_thread.run_sync(_read_all)
        if (file := self._files.get(name)) is None:
            raise Refused(404, "The console has no such file.")
        known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
        headers = (("Content-Security-Policy", _POLICY), ("ETag", file.etag), ("Cache-Control", "no-cache"))
        if file.etag in known or "*" in known:
            length = ("Content-Length", str(len(file.content)))
            return Response(b"", status=304, content_type=file.content_type, headers=(*headers, length))
        return Response(file.content, content_type=file.content_type, headers=headers)


def _read_all() -> dict[str, _File]:
    files = {}
    for path in FOLDER.iterdir():
        if path.suffix in _TYPES:
            content = path.read_bytes()
            files[path.name] = _File(content, _TYPES[path.suffix], f'"{sha256(content).hexdigest()[:32]}"')
    return files


LINES_KEPT, LINES_PER_PAGE, LINE_LENGTH_MAX = 500, 200, 1_000


class LogTail(logging.Handler):
    """Log handler that keeps the newest lines. Other threads log, too, but a deque needs no lock."""

    def __init__(self, access: Access, lag: LoopLag) -> None:
        super().__init__()
        self._access, self._lag = access, lag
        self._numbers = count(1)
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES_KEPT)

    async def run(self) -> None:
        """Store the lines that this process logs, until cancelled."""
        logger = logging.getLogger("ottla")
        logger.addHandler(self)
        try:
            await trio.sleep_forever()
        finally:
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Store a log line. Exceptions in this method reach the logger's caller."""
        try:
            message = _message_of(record)
        except Exception:  # noqa: BLE001 - the format does not fit its arguments; other handlers tell that
            message = record.msg if isinstance(record.msg, str) else "This line cannot be made."
        self._lines.append(
            {
                "number": next(self._numbers),
                "timestamp": int(record.created * 1000),
                "level": record.levelname,
                "logger": record.name,
                "message": message[:LINE_LENGTH_MAX],
            }
        )

    async def lines(self, request: Request) -> dict[str, Any]:
        """Return the newest log lines whose numbers are greater than `after`, oldest first."""
        self._access.check_token(request)
        after = requests.number(request, "after", 0)
        lines = [each for each in list(self._lines) if each["number"] > after]
        return {"lines": lines[-LINES_PER_PAGE:]}

    async def loop(self, request: Request) -> dict[str, Any]:
        """Return a histogram of the event loop's lag since the start. The browser computes the history from it."""
        buckets = self._lag.buckets
        return {"bounds": BOUNDS, "buckets": buckets, "looks": sum(buckets), "seconds": self._lag.seconds}


def _message_of(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        message += f": {record.exc_info[0].__name__}: {record.exc_info[1]}"
    return message


logger = logging.getLogger("ottla.http")


def _warn_of_passwords(broker: Broker) -> None:
    """Log a warning if passwords of users go unencrypted to another machine."""
    assert broker.http_address is not None
    host, port = broker.http_address[:2]
    if broker.config.http.http_console_users and not ip_address(host).is_loopback:
        logger.warning(
            "Passwords of http.console.users go over plain HTTP on %s port %d: bind http.listener to 127.0.0.1, and let others in by"
            " a proxy with TLS",
            host,
            port,
        )


View = Callable[[Request], Awaitable[Any]]
"""Answer a request of the page: with a value for JSON, with JSON in bytes, or with a whole response."""


def add_console(routes: Routes, broker: Broker, meters: Meters, pace: Pace) -> Callable[[], Awaitable[None]]:
    """Add the console to `routes`; return its background work. The broker's HTTP address must be known."""
    access = Access.of(broker)
    if not access.is_open and access.is_generated:
        broker.http_token = access.token
    _warn_of_passwords(broker)
    Pages().add_to(routes)
    cluster, groups, records = ClusterView(broker, access, pace, meters.room), GroupsView(broker, pace), Records(broker)
    learning = Learning(broker, records, may_start=access.may_write)
    transactions = TransactionsView(broker, pace)
    schemas, security = SchemasView(records.registry), AccessView(broker, pace)
    tail, history = LogTail(access, meters.lag), History(broker, meters, pace)
    views: dict[str, View] = {
        "overview": cluster.overview,
        "brokers": cluster.brokers,
        "topics": cluster.topics,
        "topic": cluster.topic,
        "removals": cluster.removals,
        "load": learning.state,
        "subjects": schemas.subjects,
        "subject": schemas.subject,
        "schema": schemas.schema,
        "log": tail.lines,
        "loop": tail.loop,
        "history": history.history,
        "why": WhyView(broker, access).why,
    }
    for name, handler in views.items():
        routes.get(f"/api/{name}", _answered(handler), check=access.check)
    # These ask handlers of the broker, or read logs.
    reads: dict[str, View] = {
        "records": records.page,
        "live": records.live,
        "groups": groups.groups,
        "group": groups.group,
        "transactions": transactions.transactions,
        "producers": transactions.producers,
        "settings": SettingsView(broker, pace).settings,
        "acls": security.acls,
        "users": security.users,
        "quotas": security.quotas,
    }
    for name, handler in reads.items():
        routes.get(f"/api/{name}", _answered(_while_serving(broker, handler)), check=access.check)
    if access.may_write:
        writing, topics, of_groups = Writing(broker), TopicChanges(broker), GroupChanges(broker, records, pace)
        changes: dict[str, View] = {
            "produce": writing.produce,
            "alter": writing.alter,
            "load": _of_cluster(broker, learning.change),
            "create-topic": topics.create,
            "delete-topic": topics.delete,
            "add-partitions": topics.extend,
            "trim-topic": topics.trim,
            "delete-group": of_groups.delete,
            "reset-group": of_groups.reset,
            "add-acl": security.add_acl,
            "remove-acl": security.remove_acl,
            "set-user": security.set_user,
            "delete-user": security.delete_user,
            "set-quota": security.set_quota,
            "abort-transaction": transactions.abort,
            "check-schema": schemas.check,
            "register-schema": _of_cluster(broker, schemas.register),
            "level": _of_cluster(broker, schemas.set_level),
            "delete-schema": _of_cluster(broker, schemas.delete),
        }
        for name, handler in changes.items():
            answer = _answered(_while_serving(broker, _acting(access, handler)))
            routes.post(f"/api/{name}", answer, body_bytes_max=BODY_BYTES_MAX, check=access.check)
    return partial(_work, learning, tail, history)


async def _work(learning: Learning, tail: LogTail, history: History) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(learning.run)
        nursery.start_soon(tail.run)
        nursery.start_soon(history.run)


def _while_serving(broker: Broker, handler: View) -> View:
    async def answer(request: Request) -> Any:
        try:
            with broker.serving_state.work():
                return await handler(request)
        except NotServing:
            raise Refused(503, "The broker does not serve yet, or not any more.") from None

    return answer


def _acting(access: Access, handler: View) -> View:
    async def answer(request: Request) -> Any:
        with requests.acting(access.principal_of(request), request.peer):
            return await handler(request)

    return answer


def _of_cluster(broker: Broker, handler: View) -> View:
    """Let only those who may alter the cluster make a change that is no request of Kafka, which would be authorized."""

    async def answer(request: Request) -> Any:
        requests.check_may_alter_cluster(broker)
        return await handler(request)

    return answer


def _answered(handler: View) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            found = await handler(request)
        except KafkaError as error:
            raise refusal(error.code, error.message) from None
        if isinstance(found, Response):
            return found
        body = found if isinstance(found, bytes) else json.dumps(found, separators=(",", ":")).encode()
        return Response(body, content_type=JSON)

    return answer
