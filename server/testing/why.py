"""Why something happened in a lab's Kafka: the causes that its brokers noted, joined with what clients sent.

Brokers note what they do out of the ordinary (`wire/happenings.py`). The wire tap knows when a client sent its last request,
and which requests a client had to send again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ottla.server.cli.inspection.fate import SETTINGS, Aborted, Fate, Offsets, OpenTransaction, fate_of
from ottla.server.testing.errors import LabError, nearest
from ottla.server.testing.transactions import list_transactions, until_marked
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import KINDS, MEMBER_REMOVED, Fact, Happening, in_seconds, sentence_of, utc_ms
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_transactions import DescribeProducersRequest, TopicRequest

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition
    from ottla.server.testing.wire_tap.wire import Wire
    from ottla.server.testing.wire_tap.wire_request import WireRequest
    from ottla.server.testing.world.lab import Lab
    from ottla.server.testing.world.node import Node

RETRY = "retry"
RETRIES_LOOKED_MAX = 2_000
"""Requests among which those that had to be sent again are looked for."""

READ_BYTES = 1 << 20
TOPIC_TYPE = 2  # of resources in DescribeConfigs
_TO_COORDINATOR = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "ConsumerGroupHeartbeat")


class Cause(NamedTuple):
    """Something that a broker did out of the ordinary, and why: `sentence` tells both.

    `kind`: such as "rebalance". `time_ms`: in ms since 1970. `broker`: its id. `facts`: values by name, such as group,
    topic or error. `times`: how often it happened within a minute.
    """

    time_ms: int
    kind: str
    sentence: str
    broker: int
    facts: Mapping[str, Fact]
    times: int

    def __str__(self) -> str:
        return f"{utc_ms(self.time_ms)} {self.sentence}"


class Why(Sequence[Cause]):
    """Sequence of causes, oldest first. `print(why)` shows a line for each; `"text" in why` searches these lines."""

    def __init__(self, causes: Iterable[Cause], *, names_brokers: bool = False) -> None:
        """`names_brokers`: begin each line with the broker's id."""
        self._causes, self._names_brokers = list(causes), names_brokers

    def __len__(self) -> int:
        return len(self._causes)

    @overload
    def __getitem__(self, index: int) -> Cause: ...

    @overload
    def __getitem__(self, index: slice) -> list[Cause]: ...

    def __getitem__(self, index: int | slice) -> Cause | list[Cause]:
        return self._causes[index]

    def __contains__(self, wanted: object) -> bool:
        return wanted in str(self) if isinstance(wanted, str) else wanted in self._causes

    def __str__(self) -> str:
        if not self._causes:
            return "Nothing out of the ordinary happened."
        return "\n".join(f"broker {each.broker}: {each}" if self._names_brokers else str(each) for each in self._causes)

    def __repr__(self) -> str:
        return f"<{len(self)} causes>\n{self}" if self._causes else "<no causes>"


def why(lab: Lab, wire: Wire | None, facts: Mapping[str, Fact | None], kind: str | None = None) -> Why:
    """Return the causes that have all `facts`; None in place of a value: any. Raises LabError for an unknown kind.

    `kind`: only this one; None for all.
    `wire`: the tap of this Kafka; None if nobody listened.
    """
    if kind is not None and kind not in (*KINDS, RETRY):
        raise LabError(f"There is no kind of causes named {kind!r}{nearest(kind, (*KINDS, RETRY))}")
    wanted = {name: fact for name, fact in facts.items() if fact is not None}
    noted = [
        (broker, each)
        for broker, happenings in lab.loop.call_sync(lab.world.happenings)
        for each in happenings
        if each.is_about(wanted)
    ]
    causes = [_cause(broker, each, wire) for broker, each in noted]
    if wire is not None and not wanted.keys() - {"client_id"}:
        # Each answer has to be decoded, so the last ones have to do.
        causes += _retries(wire.requests()[-RETRIES_LOOKED_MAX:], wanted.get("client_id"))
    chosen = [each for each in causes if kind is None or each.kind == kind]
    return Why(sorted(chosen, key=lambda each: each.time_ms), names_brokers=len(lab.world.nodes) > 1)


def why_offset(lab: Lab, topic: str, partition: int, offset: int) -> Fate:
    """Return what became of an offset. Raises LabError if the partition has no leader."""
    if offset < 0 or partition < 0:
        raise LabError(f"There is no offset {offset} of {topic}-{partition}; both numbers begin at 0.")
    lab.call(until_marked, lab.world, topic)
    return fate_of(LabView(lab, topic, partition), offset)


def _cause(broker: int, happening: Happening, wire: Wire | None) -> Cause:
    sentence = sentence_of(happening)
    if wire is not None and happening.kind == MEMBER_REMOVED:
        sentence += _last_heard(wire, happening)
    return Cause(happening.first_ms, happening.kind, sentence, broker, happening.facts, happening.count)


# ---------------------------------------------------------------------- what clients sent


def _last_heard(wire: Wire, removed: Happening) -> str:
    """Return sentences about the last requests of a member before it was removed; empty if none was seen."""
    client_id, group = removed.facts.get("client_id"), removed.facts.get("group")
    sent = [each for each in reversed(wire.requests(client_id=client_id)) if each.time * 1000 <= removed.first_ms]
    to_coordinator = (each for each in sent if each.api in _TO_COORDINATOR)
    own = next((each for each in to_coordinator if group in each.groups and _is_of(each, removed)), None)
    fetch = next((each for each in sent if each.api == "Fetch"), None)
    told = ""
    if own is not None:
        told += f" Its last request to the coordinator was {_article(own.api)}, {_before(own, removed)}."
    if fetch is not None:
        told += f" Its client last fetched {_before(fetch, removed)}."
    return told


def _is_of(request: WireRequest, removed: Happening) -> bool:
    member_id = getattr(request.request, "member_id", None)
    # The first JoinGroup of a member does not know its id yet.
    return member_id in ("", removed.facts.get("member"))


def _before(request: WireRequest, removed: Happening) -> str:
    return f"{in_seconds(round(removed.first_ms - request.time * 1000))} before"


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "AEIOU" else f"a {name}"


def _retries(requests: Iterable[WireRequest], client_id: object) -> Iterator[Cause]:
    """Yield a cause for each series of requests of one kind that a client had to send again."""
    series: dict[tuple[str | None, str], list[tuple[WireRequest, str]]] = {}
    for request in requests:
        if client_id is not None and request.client_id != client_id:
            continue
        key = request.client_id, request.api
        errors = [each for each in request.errors if _is_retriable(each)]
        if errors:
            series.setdefault(key, []).append((request, errors[0]))
        elif key in series:
            yield _retry(series.pop(key), request)
    for failed in series.values():
        yield _retry(failed, None)


def _retry(failed: Sequence[tuple[WireRequest, str]], done: WireRequest | None) -> Cause:
    first, errors = failed[0][0], ", ".join(dict.fromkeys(error for _, error in failed))
    who = f"{first.client_id!r} at {first.peer}"
    times = "once" if len(failed) == 1 else f"{len(failed)} times"
    sentence = f"{who} was answered {times} with {errors}, after which {first.api} has to be sent again"
    if done is not None:
        sentence += f"; it went well {in_seconds(round((done.time - first.time) * 1000))} later"
    facts: dict[str, Fact] = {"client_id": first.client_id or "", "error": failed[0][1]}
    return Cause(round(first.time * 1000), RETRY, sentence + ".", first.node_id, facts, len(failed))


def _is_retriable(name: str) -> bool:
    error = ErrorCode.__members__.get(name)
    return error is not None and error.retriable


# ---------------------------------------------------------------------- a partition, seen from inside


class LabView:
    """One partition of a lab's Kafka, as its leader holds it."""

    def __init__(self, lab: Lab, topic: str, partition: int) -> None:
        self._lab = lab
        self.topic, self.partition = topic, partition

    def _leading(self) -> Partition:
        return self._lab.world.leader(self.topic, self.partition).serving().partition(self.topic, self.partition)

    def partition_count(self) -> int | None:
        def count() -> int | None:
            state = self._lab.world.any_node().serving().cluster.topics.get(self.topic)
            return None if state is None else len(state.partitions)

        return self._lab.loop.call_sync(count)

    def offsets(self) -> Offsets:
        def look() -> Offsets:
            leading = self._leading()
            return Offsets(leading.log_start_offset, leading.high_watermark, leading.last_stable_offset)

        return self._lab.loop.call_sync(look)

    def log_end_offset(self) -> int | None:
        return self._lab.loop.call_sync(lambda: self._leading().log_end_offset)

    def read(self, offset: int) -> bytes:
        def look() -> bytes:
            found = self._leading().read(offset, READ_BYTES, at_least_one_batch=True)
            return bytes(found.records if isinstance(found.records, bytes) else found.records.read())

        return self._lab.loop.call_sync(look)

    def aborted(self, offset: int) -> Sequence[Aborted]:
        def look() -> list[Aborted]:
            found = self._leading().read(offset, READ_BYTES, read_committed=True, at_least_one_batch=True)
            return [Aborted(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]

        return self._lab.loop.call_sync(look)

    def open_transactions(self) -> Sequence[OpenTransaction]:
        request = DescribeProducersRequest(topics=[TopicRequest(name=self.topic, partition_indexes=[self.partition])])
        answer = self._lab.call(self._lab.world.ask, request, self._leader())
        return [
            OpenTransaction(each.producer_id, each.current_txn_start_offset, each.last_timestamp)
            for topic in answer.topics
            for partition in topic.partitions
            for each in partition.active_producers
            if each.current_txn_start_offset >= 0
        ]

    def _leader(self) -> Node:
        return self._lab.loop.call_sync(self._lab.world.leader, self.topic, self.partition)

    def transactional_id(self, producer_id: int) -> str | None:
        transactions = self._lab.call(list_transactions, self._lab.world).values()
        return next((each.transactional_id for each in transactions if each.producer_id == producer_id), None)

    def settings(self) -> Mapping[str, str | None]:
        wanted = DescribeConfigsResource(
            resource_type=TOPIC_TYPE, resource_name=self.topic, configuration_keys=list(SETTINGS)
        )
        answer: Any = self._lab.call(self._lab.world.ask, DescribeConfigsRequest(resources=[wanted]))
        return {each.name: each.value for result in answer.results for each in result.configs}

    def happenings(self) -> Iterable[Happening]:
        noted = self._lab.loop.call_sync(self._lab.world.happenings)
        return [each for _, happenings in noted for each in happenings if each.is_about({"topic": self.topic})]
