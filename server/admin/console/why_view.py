"""Causes of what this broker did out of the ordinary, for `ottla why` and for scripts.

    GET /api/why?group=g&topic=t&partition=0&kind=rebalance&after=12

All parameters are optional. Without the console's token the answer leaves out what clients do with connections, and the
addresses of all but members of groups: a Kafka client may learn no others. `isWhole` is false then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.server.admin.console import requests
from ottla.server.admin.http.routes import Refused
from ottla.wire.happenings import DISCONNECT, LOGIN_FAILED, MEMBER_FENCED, MEMBER_REMOVED, THROTTLE, as_json

if TYPE_CHECKING:
    from ottla.server.admin.console.requests import Access
    from ottla.server.admin.http.routes import Request
    from ottla.server.broker import Broker
    from ottla.wire.happenings import Fact, Happening

TEXTS = ("group", "member", "transactional_id", "topic", "client_id", "host", "error")
"""Facts by which an answer may be narrowed, as texts; `partition` is a number."""

PER_PAGE = 500
_ABOUT_CONNECTIONS = frozenset({DISCONNECT, LOGIN_FAILED, THROTTLE})
_ABOUT_MEMBERS = frozenset({MEMBER_REMOVED, MEMBER_FENCED})


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
            and (is_whole or not _is_hidden(each, wanted))
            and each.is_about(wanted)
        ]
        return {
            "clusterId": self._broker.cluster.cluster_id,
            "nodeId": self._broker.node_id,
            "nowMs": self._broker.now_ms(),
            "isWhole": is_whole,
            "happenings": [as_json(each) if is_whole else _for_everybody(each) for each in found[-PER_PAGE:]],
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


def _is_hidden(happening: Happening, wanted: Mapping[str, Fact]) -> bool:
    """Return True for what is told with the token alone. To find a happening by an address would tell the address."""
    return happening.kind in _ABOUT_CONNECTIONS or ("host" in wanted and happening.kind not in _ABOUT_MEMBERS)


def _for_everybody(happening: Happening) -> dict[str, Any]:
    """Return a happening as JSON, without an address that Kafka's requests do not tell."""
    told = as_json(happening)
    if happening.kind not in _ABOUT_MEMBERS and (host := told["facts"].pop("host", None)) is not None:
        told["cause"] = cause = told["cause"].replace(f" at {host}", "")
        # A cause that is too long to be kept whole may end in the beginning of the address.
        start, _, end = cause.rpartition(" at ")
        if end.endswith("...") and " " not in end and start:
            told["cause"] = f"{start}..."
    return told
