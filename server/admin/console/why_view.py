"""Causes of what this broker did out of the ordinary, for `ottla why` and for scripts.

    GET /api/why?group=g&topic=t&partition=0&kind=rebalance&after=12

All parameters are optional. Without the console's token the answer leaves out what clients do with connections: their addresses
are nothing that a Kafka client may learn of others. `isWhole` says whether that is so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.server.admin.console import requests
from ottla.server.admin.http.routes import Refused
from ottla.wire.happenings import DISCONNECT, LOGIN_FAILED, THROTTLE, as_json

if TYPE_CHECKING:
    from ottla.server.admin.console.requests import Access
    from ottla.server.admin.http.routes import Request
    from ottla.server.broker import Broker
    from ottla.wire.happenings import Fact

TEXTS = ("group", "member", "transactional_id", "topic", "client_id", "host", "error")
"""Facts by which an answer may be narrowed, as texts; `partition` is a number."""

PER_PAGE = 500
_ABOUT_CONNECTIONS = frozenset({DISCONNECT, LOGIN_FAILED, THROTTLE})


class WhyView:
    """Handler of the console's requests for happenings."""

    def __init__(self, broker: Broker, access: Access) -> None:
        self._broker, self._access = broker, access

    async def why(self, request: Request) -> dict[str, Any]:
        """Return the newest happenings that have all facts of the query, oldest first.

        `kind`: only of this kind. `after`: only those noted after the one of this number.
        """
        wanted, is_whole = self._wanted(request), self._is_allowed(request)
        kind, after = requests.text(request, "kind", ""), requests.number(request, "after", 0)
        found = [
            each
            for each in self._broker.happenings
            if each.number > after
            and (not kind or each.kind == kind)
            and (is_whole or each.kind not in _ABOUT_CONNECTIONS)
            and each.is_about(wanted)
        ]
        return {
            "clusterId": self._broker.cluster.cluster_id,
            "nodeId": self._broker.node_id,
            "nowMs": self._broker.now_ms(),
            "isWhole": is_whole,
            "happenings": [as_json(each) for each in found[-PER_PAGE:]],
            "leftOut": max(len(found) - PER_PAGE, 0),
            "logEndOffset": self._log_end_offset(wanted),
        }

    def _wanted(self, request: Request) -> dict[str, Fact]:
        wanted: dict[str, Fact] = {name: requests.text(request, name) for name in TEXTS if name in request.query}
        if "partition" in request.query:
            wanted["partition"] = requests.number(request, "partition", None)
        return wanted

    def _is_allowed(self, request: Request) -> bool:
        try:
            self._access.check_token(request)
        except Refused:
            return False
        return True

    def _log_end_offset(self, wanted: dict[str, Fact]) -> int | None:
        """Return the end of this broker's log of the partition in the query; None if it does not lead that."""
        topic, index = wanted.get("topic"), wanted.get("partition")
        if not isinstance(topic, str) or not isinstance(index, int):
            return None
        partition = self._broker.replicas.partition(topic, index)
        return partition.log_end_offset if partition is not None and partition.is_leader else None
