"""Views of a running cluster: a partition as any Kafka shows it to clients, and what Ottla's brokers tell over HTTP.

`ClusterView` is the view that `fate.py` asks. `Told` has happenings (`server/admin/console/why_view.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from ottla.server.cli.client.cluster import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Cluster,
    Partition,
    leader_of_each,
    offsets_at,
    only,
)
from ottla.server.cli.client.configs import TOPIC, Resource, settings_of
from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.client.transactions import list_transactions, open_in
from ottla.server.cli.inspection.fate import SETTINGS, Aborted, Offsets, OpenTransaction
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import Happening, from_json
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

READ_BYTES = 4 << 20
READ_UNCOMMITTED = 0
_NAMES_MAX_VERSION = 12  # of Fetch: later ones name topics by their ids
USUAL_PORT = 9644
TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 16 << 20


class ClusterView:
    """One partition of a cluster of any make. `told`: what Ottla's brokers tell over HTTP."""

    def __init__(self, cluster: Cluster, place: Partition, told: Told) -> None:
        self._cluster, self._told = cluster, told
        self.topic, self.partition = place

    def partition_count(self) -> int | None:
        topic = only(self._cluster.metadata([self.topic]).topics, f"topic {self.topic}")
        if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            return None
        self._cluster.check(f"topic {self.topic}", topic.error_code)
        return len(topic.partitions)

    def offsets(self) -> Offsets:
        return Offsets(self._offset(EARLIEST), self._offset(LATEST), self._offset(LATEST, READ_COMMITTED))

    def _offset(self, timestamp: int, isolation: int = READ_UNCOMMITTED) -> int:
        found = offsets_at(self._cluster, {self.topic: [self.partition]}, timestamp, isolation=isolation)
        return found[self.topic, self.partition]

    def log_end_offset(self) -> int | None:
        return self._told.log_end_offset

    def read(self, offset: int) -> bytes:
        records = self._fetched(offset, READ_UNCOMMITTED).records
        return b"" if records is None else bytes(records)

    def aborted(self, offset: int) -> Sequence[Aborted]:
        found = self._fetched(offset, READ_COMMITTED).aborted_transactions or ()
        return [Aborted(each.producer_id, each.first_offset) for each in found]

    def _fetched(self, offset: int, isolation: int) -> Any:
        wanted = FetchPartition(partition=self.partition, fetch_offset=offset, partition_max_bytes=READ_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=READ_BYTES,
            isolation_level=isolation,
            topics=[FetchTopic(topic=self.topic, partitions=[wanted])],
        )
        what = f"partition {self.topic}-{self.partition}"

        def ask() -> Any:
            [leader] = leader_of_each(self._cluster, [(self.topic, self.partition)]).values()
            answer = self._cluster.broker(leader).ask(request, at_most=_NAMES_MAX_VERSION)
            self._cluster.check(what, answer.error_code)
            found = only(only(answer.responses, what).partitions, what)
            self._cluster.check(what, found.error_code)
            return found

        return self._cluster.patiently(ask)

    def open_transactions(self) -> Sequence[OpenTransaction]:
        try:
            found = open_in(self._cluster, [(self.topic, self.partition)])
        except RequestFailed:  # a broker before Kafka 2.8 does not know the request, and a principal may lack the right
            return []
        return [OpenTransaction(each.producer_id, each.start_offset, each.last_ms) for each in found]

    def transactional_id(self, producer_id: int) -> str | None:
        try:
            found = list_transactions(self._cluster, producer_ids=[producer_id])
        except RequestFailed:
            return None
        return found[0].transactional_id if found else None

    def settings(self) -> Mapping[str, str | None]:
        return self._settings

    @cached_property
    def _settings(self) -> Mapping[str, str | None]:
        try:
            found = settings_of(self._cluster, Resource(TOPIC, self.topic), SETTINGS, with_origins=False)
        except RequestFailed:  # a principal may read records without DescribeConfigs
            return {}
        return {each.name: each.value for each in found}

    def happenings(self) -> Iterable[Any]:
        return self._told.happenings


# --- happenings


class Told(NamedTuple):
    """Answers of one or more brokers.

    `is_whole` false: they left out connections, because no token was given. `log_end_offset`: of the partition that was
    asked for; None if none of them leads it.
    """

    happenings: Sequence[Happening] = ()
    is_whole: bool = True
    left_out: int = 0
    log_end_offset: int | None = None
    cluster_id: str = ""


def usual_url(host: str) -> str:
    """Return the address at which `ottla start --http :9644` serves HTTP on a host."""
    return f"http://[{host}]:{USUAL_PORT}" if ":" in host else f"http://{host}:{USUAL_PORT}"


def checked_url(text: str) -> str:
    """Return an address of HTTP without its path; `text` may lack the scheme. Raises UsageError."""
    whole = text if "//" in text else f"http://{'localhost' if text.startswith(':') else ''}{text}"
    try:
        parts = urlsplit(whole)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageError(f"--http {text}: must be HOST:PORT or a URL, such as http://localhost:{USUAL_PORT}")
    return f"{parts.scheme}://{parts.netloc}"


def ask_broker(url: str, query: Mapping[str, str | int], token: str | None = None) -> Told:
    """Ask one broker. `query`: facts that all happenings have to have. Raises RequestFailed."""
    import http.client  # here, as a cluster of another make has no HTTP
    import urllib.error
    import urllib.request

    request = urllib.request.Request(f"{url}/api/why?{urlencode(query)}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            body = answer.read(ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            words = error.read(2000).decode("utf-8", "replace").strip()
        hint = "; --token gives the console's token" if error.code == 401 else ""
        raise RequestFailed(f"{url} answers {error.code}: {words or error.reason}{hint}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise RequestFailed(f"{url} does not answer: {getattr(reason, 'strerror', None) or reason}") from None
    return _told(url, body)


def _told(url: str, body: bytes) -> Told:
    try:
        value: Any = json.loads(body)
        end = value["logEndOffset"]
        return Told(
            [from_json(each) for each in value["happenings"]],
            bool(value["isWhole"]),
            int(value["leftOut"]),
            None if end is None else int(end),
            str(value["clusterId"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestFailed(f"{url} answers something else; is it the HTTP endpoint of a broker?") from None


def together(answers: Sequence[Told]) -> Told:
    """Return the answers of several brokers as one, in the order of time."""
    happenings = sorted((each for told in answers for each in told.happenings), key=lambda each: each.first_ms)
    ends = [told.log_end_offset for told in answers if told.log_end_offset is not None]
    return Told(
        happenings,
        all(told.is_whole for told in answers),
        sum(told.left_out for told in answers),
        ends[0] if ends else None,
        answers[0].cluster_id if answers else "",
    )
