"""The paths of the console, put together."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ottla.server.console.access import Access
from ottla.server.console.asking import refusal
from ottla.server.console.cluster_view import ClusterView
from ottla.server.console.groups_view import GroupsView
from ottla.server.console.learning import Learning
from ottla.server.console.log_tail import LogTail
from ottla.server.console.pages import Pages
from ottla.server.console.records import Records
from ottla.server.console.settings_view import SettingsView
from ottla.server.console.transactions_view import TransactionsView
from ottla.server.console.writing import BODY_BYTES_MAX, Writing
from ottla.server.coordinators.groups_code import load_groups
from ottla.server.http.routes import JSON, Refused, Request, Response
from ottla.server.serving_state import NotServing
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.http.metrics.process import LoopLag
    from ottla.server.http.pace import Pace
    from ottla.server.http.routes import Handler, Routes

Asked = Callable[[Request], Awaitable[Any]]
"""What answers a question of the page: with something that becomes JSON, with JSON in bytes, or with a whole response."""


def add_console(routes: Routes, broker: Broker, lag: LoopLag, pace: Pace) -> Callable[[], Awaitable[None]]:
    """Add the page and what it asks; returns the work behind it. The broker's HTTP address is known by now."""
    # Whoever opens the console asks for groups, and nobody is served yet who would have to wait.
    load_groups()
    access = Access.of(broker)
    if not access.is_open and access.is_generated:
        broker.http_token = access.token
    Pages().add_to(routes)
    cluster, groups, records = ClusterView(broker, access, pace), GroupsView(broker, pace), Records(broker)
    learning = Learning(broker, records, may_start=access.may_write)
    transactions = TransactionsView(broker, pace)
    tail = LogTail(access, lag)
    pictures: dict[str, Asked] = {
        "overview": cluster.overview,
        "brokers": cluster.brokers,
        "topics": cluster.topics,
        "topic": cluster.topic,
        "load": learning.told,
        "log": tail.lines,
        "loop": tail.loop,
    }
    for name, handler in pictures.items():
        routes.get(f"/api/{name}", _answered(handler), check=access.check)
    # These ask handlers of the broker, or read logs.
    reads: dict[str, Asked] = {
        "records": records.page,
        "live": records.live,
        "groups": groups.groups,
        "group": groups.group,
        "transactions": transactions.transactions,
        "producers": transactions.producers,
        "settings": SettingsView(broker, pace).settings,
    }
    for name, handler in reads.items():
        routes.get(f"/api/{name}", _answered(_while_serving(broker, handler)), check=access.check)
    if access.may_write:
        writing = Writing(broker)
        changes: dict[str, Asked] = {"produce": writing.produce, "alter": writing.alter, "load": learning.change}
        for name, handler in changes.items():
            answer = _answered(_while_serving(broker, handler))
            routes.post(f"/api/{name}", answer, body_bytes_max=BODY_BYTES_MAX, check=access.check)
    return partial(_work, learning, tail)


async def _work(learning: Learning, tail: LogTail) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(learning.run)
        nursery.start_soon(tail.run)


def _while_serving(broker: Broker, handler: Asked) -> Asked:
    async def answer(request: Request) -> Any:
        try:
            with broker.serving_state.work():
                return await handler(request)
        except NotServing:
            raise Refused(503, "The broker does not serve yet, or not any more.") from None

    return answer


def _answered(handler: Asked) -> Handler:
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
