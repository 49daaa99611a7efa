"""How random requests are told: what their symbols stand for in one telling, and what of an answer depends on chance.

Symbols stand in angle brackets: names and ids of topics, groups and transactional ids, and what earlier answers said. Those of
the second kind depend on whom a request speaks of: `<epoch>` on its group and member, `<producer>` on its transactional
id. `<epoch + 1>` is the number after it.

Kafka does some things after it has answered: it writes the markers of a transaction and begins the state of share partitions.
They are waited for, so that the next request finds the same on both sides.
"""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from typing import Any

from compat_tests.differential.asking import fill
from compat_tests.differential.asking_records import batch, new_producer, record
from compat_tests.differential.asking_share import alteration, known, offsets_of
from compat_tests.differential.conversation import COORDINATOR_IS_COMING, Talk, Topic, newest
from compat_tests.differential.random_values import RANKED_BY
from compat_tests.support.brokers import wait_until

import ottla.wire.messages
from ottla.wire.compression import Compression, compress
from ottla.wire.messages import share_fetch as fetching
from ottla.wire.messages import share_group_state as summarizing
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.groups import DescribeGroupsRequest
from ottla.wire.schema import Array, Bytes, Message, Records, Struct, Uuid

Step = dict[str, Any]
Scope = dict[str, Any]
TOPICS = {"one": 1, "two": 2, "compacted": 1}
GROUPS = ("group", "other group")
TRANSACTIONAL_IDS = ("first id", "second id")
SHARE = 2
CALCULATED = re.compile(r"(<[a-z ]+) ([+-]) (\d+)>")
# Which end of themselves.
TRANSIENT = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
SHARE_LEADERS = ("ShareFetch", "ShareAcknowledge")
TASKS = ("active_tasks", "standby_tasks", "warmup_tasks")
UNORDERED = ("partitions", "subscribed_topic_names")
# Answers about all there is, in which other tellings show as well: the list, and the field that has the name.
OF_ALL_TELLINGS = {
    "ListGroupsResponse": ("groups", "group_id"),
    "ListTransactionsResponse": ("transaction_states", "transactional_id"),
    "ListConfigResourcesResponse": ("config_resources", "resource_name"),
}
WITHOUT_NAMES_OF_OURS = (4, 8, 16)  # brokers, their loggers, client metrics
BACKGROUND_S = 3.0
# What a share session held is free a little after its end was answered, and nothing that could be asked shows when.
RELEASE_S = 0.1


def _requests() -> Iterator[tuple[str, type[Message]]]:
    for module in pkgutil.iter_modules(ottla.wire.messages.__path__):
        for name, value in vars(importlib.import_module(f"ottla.wire.messages.{module.name}")).items():
            if name.endswith("Request") and isinstance(value, type) and issubclass(value, Message):
                yield name.removesuffix("Request"), value


REQUESTS = dict(_requests())


def records_of(described: dict[str, Any]) -> bytes:
    key = b"key" if described["key"] else None
    count = described["values"]
    area = b"".join(record(offset_delta=i, time_delta=i, key=key, value=b"value %d" % i) for i in range(count))
    codec, time = described["codec"], described["time"]
    fields = {"count": count, "last_offset_delta": count - 1, "base_timestamp": time, "max_timestamp": time + count - 1}
    fields |= {"attributes": codec | described["flags"]} | described["producer"] | described["wrong"]
    return batch(area, lambda data: compress(Compression(codec), data), **fields)


class Memory:
    """What answers of before said, for the symbols that depend on whom a request speaks of."""

    def __init__(self) -> None:
        self.idempotent = -1
        self._producers: dict[str, tuple[int, int]] = {}
        self._sequences: dict[tuple[Any, ...], int] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        self._sessions: dict[tuple[str, str], int] = {}
        self._told: dict[tuple[str, str, str], Any] = {}

    def look_up(self, symbol: str, scope: Scope) -> Any:
        name = scope.get("transactional_id") or scope.get("v3_and_below_transactional_id") or ""
        producer = self._producers.get(name, (self.idempotent, 0))
        member = scope.get("group_id") or "", scope.get("member_id") or ""
        known: dict[str, Any] = {
            "<producer>": producer[0],
            "<producer epoch>": producer[1],
            "<sequence>": self._sequences.get((*producer, *_place(scope)), 0),
            "<epoch>": self._epochs.get(member, 0),
            "<share epoch>": self._sessions.get(member, 0),
            "<assigned>": self._told.get((*member, "<assigned>"), []),
        } | {f"<{role}>": self._told.get((*member, role), []) for role in TASKS}
        return known.get(symbol, symbol)

    def learn(self, api: str, request: Any, answer: Any) -> None:
        if api == "Produce":
            self._learn_sequences(request, answer)
        elif getattr(answer, "error_code", 0):
            return
        elif api in ("InitProducerId", "EndTxn") and answer.producer_id != -1 and request.transactional_id:
            self._producers[request.transactional_id] = answer.producer_id, answer.producer_epoch
        elif api in SHARE_LEADERS:
            after = request.share_session_epoch + 1
            self._sessions[request.group_id or "", request.member_id or ""] = after
        elif api.endswith("GroupHeartbeat"):
            self._learn_membership(request, answer)

    def _learn_sequences(self, request: Any, answer: Any) -> None:
        producer = self._producers.get(request.transactional_id or "", (self.idempotent, 0))
        taken = {
            (name, part.index)
            for topic in answer.responses
            for name in (topic.name, topic.topic_id.hex())
            for part in topic.partition_responses
            if not part.error_code
        }
        for topic in request.topic_data:
            for part in topic.partition_data:
                if {(topic.name, part.index), (topic.topic_id.hex(), part.index)} & taken:
                    name = topic.name or topic.topic_id.hex()
                    place = (*producer, name, part.index)
                    self._sequences[place] = self._sequences.get(place, 0) + _count(part.records)

    def _learn_membership(self, request: Any, answer: Any) -> None:
        member = request.group_id, request.member_id
        self._epochs[member] = max(answer.member_epoch, 0)
        if getattr(answer, "assignment", None) is not None:
            self._told[*member, "<assigned>"] = [_plain(each) for each in answer.assignment.topic_partitions]
        for role in TASKS:
            if getattr(answer, role, None) is not None:
                self._told[*member, role] = [_plain(each) for each in getattr(answer, role)]


def _place(scope: Scope) -> tuple[Any, ...]:
    return scope.get("name") or scope.get("topic_id"), scope.get("index")


def _count(records: Any) -> int:
    return int.from_bytes(bytes(records[57:61]), "big", signed=True) if records is not None else 0


def _plain(struct: Struct) -> dict[str, Any]:
    values = {name: getattr(struct, name) for name in struct.wire_fields}
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}


class World:
    """What the symbols of a sequence stand for in one telling."""

    def __init__(self, talk: Talk, steps: list[Step]) -> None:
        self._talk = talk
        self._mentioned = repr(steps)
        self._apis = {step["api"] for step in steps}
        self._topics: dict[str, Topic] = {}
        self._symbols: dict[str, Any] = {"<member>": "", "<generation>": -1, "<session>": 0, "<new>": talk.name("new")}
        self._memory = Memory()
        for kind, partitions in TOPICS.items():
            if self._is_mentioned(kind):
                self._make_topic(kind, partitions)
        self._make_groups()
        self._make_producers()
        self._make_share_partitions()
        if "one" in self._topics:
            fill(talk, self._topics["one"], [1000, 1001, 1002])
            fill(talk, self._topics["one"], [1004, 1003])

    def _is_mentioned(self, kind: str) -> bool:
        return f"<{kind}>" in self._mentioned or f"<id of {kind}>" in self._mentioned

    def _make_topic(self, kind: str, partitions: int) -> None:
        configs = {"cleanup_policy": "compact"} if kind == "compacted" else {}
        topic = self._talk.topic(kind, partitions, **configs)
        self._topics[kind] = topic
        self._symbols |= {f"<{kind}>": topic.name, f"<id of {kind}>": topic.id.hex()}

    def _make_groups(self) -> None:
        talk = self._talk
        if "group" in self._mentioned.lower():
            # Until the group without a name has a coordinator, too.
            talk.group("any group")
            asked = DescribeGroupsRequest(groups=[""])
            talk.until(asked, lambda answer: answer.groups[0].error_code not in COORDINATOR_IS_COMING)
        for kind in GROUPS:
            if f"<{kind}>" in self._mentioned:
                self._symbols[f"<{kind}>"] = talk.group(kind.replace(" ", "-"))
        if any(each.endswith("GroupHeartbeat") for each in self._apis) or self._apis & set(SHARE_LEADERS):
            for topic in self._topics.values():
                known(talk, topic)

    def _make_producers(self) -> None:
        names = [self._talk.name(each.replace(" ", "-")) for each in TRANSACTIONAL_IDS]
        self._symbols |= {f"<{kind}>": name for kind, name in zip(TRANSACTIONAL_IDS, names, strict=True)}
        if "<producer" in self._mentioned:
            self._memory.idempotent = new_producer(self._talk)
        if any(f"<{each}>" in self._mentioned for each in TRANSACTIONAL_IDS):
            find = FindCoordinatorRequest(key_type=1, coordinator_keys=["", *names])
            self._talk.until(find, lambda answer: not any(each.error_code for each in answer.coordinators[1:]))
            asked = DescribeTransactionsRequest(transactional_ids=["", *names])
            self._talk.until(
                asked,
                lambda answer: not any(each.error_code in COORDINATOR_IS_COMING for each in answer.transaction_states),
            )

    def _make_share_partitions(self) -> None:
        """Their coordinators are ready. Where records are shared, the groups begin with the first record of `<one>`."""
        if not any("Share" in each for each in self._apis):
            return
        groups = [self._symbols[f"<{kind}>"] for kind in GROUPS if f"<{kind}>" in self._mentioned]
        # Which makes the topic of their states.
        self._talk.do(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=["group:AAAAAAAAAAAAAAAAAAAAAQ:0"]))
        for group in groups:
            for kind, topic in self._topics.items():
                for partition in range(TOPICS[kind]):
                    self._wait_for_share_coordinator(group, topic, partition)
        if self._apis & set(SHARE_LEADERS) and "one" in self._topics:
            for group in groups:
                self._begin_to_share(group, self._topics["one"])

    def _wait_for_share_coordinator(self, group: str, topic: Topic, partition: int) -> None:
        data = summarizing.ReadStatePartition(partition=partition, leader_epoch=0)
        topics = [summarizing.ReadStateSummaryData(topic_id=topic.id, partitions=[data])]
        asked = summarizing.ReadShareGroupStateSummaryRequest(group_id=group, topics=topics)
        coming = COORDINATOR_IS_COMING[:3]
        self._talk.until(asked, lambda answer: answer.results[0].partitions[0].error_code not in coming)

    def _begin_to_share(self, group: str, topic: Topic) -> None:
        begun = self._talk.do(alteration(group, (topic.name, 0, 0)))
        assert not begun.error_code and not begun.responses[0].partitions[0].error_code, begun
        wanted = fetching.FetchPartition(partition_index=0, acknowledgement_batches=[])
        loading = fetching.ShareFetchRequest(
            group_id=group,
            member_id="loader",
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1,
            max_records=1,
            batch_size=1,
            topics=[fetching.FetchTopic(topic_id=topic.id, partitions=[wanted])],
            forgotten_topics_data=[],
        )
        # This session lasts as long as the telling: without any, Kafka forgets a share partition when a connection is
        # closed, and Ottla when the last session ends.
        wait_until(
            lambda: bool(self._talk.do(loading, of=f"loader of {group}").responses),
            f"{group} begins to share {topic.name}",
        )

    # --- asking

    def request(self, step: Step) -> Message:
        request = REQUESTS[step["api"]]
        made = self._struct(request, step["fields"], {})
        assert isinstance(made, Message)
        return made

    def _struct(self, struct: type[Struct], fields: dict[str, Any], outer: Scope) -> Struct:
        made = struct.zero()
        plain = {name: self._symbol(value, outer) for name, value in fields.items() if isinstance(value, str | int)}
        scope = outer | plain
        for name, value in fields.items():
            setattr(made, name, self._value(struct.wire_fields[name].type, value, scope))
        return made

    def _value(self, kind: Any, value: Any, scope: Scope) -> Any:
        value = self._symbol(value, scope)
        if value is None:
            return None
        if isinstance(kind, Array):
            return [self._value(kind.item, each, scope) for each in value]
        if kind is Records:
            producer = {name: self._symbol(each, scope) for name, each in value["producer"].items()}
            return records_of(value | {"producer": producer})
        if isinstance(kind, type):
            return self._struct(kind, value, scope)
        return bytes.fromhex(value) if kind is Uuid or kind is Bytes else value

    def _symbol(self, value: Any, scope: Scope) -> Any:
        if not isinstance(value, str):
            return value
        if (calculated := CALCULATED.fullmatch(value)) is not None:
            number = int(self._symbol(f"{calculated[1]}>", scope))
            return number + int(calculated[2] + calculated[3])
        return self._memory.look_up(self._symbols.get(value, value), scope)

    # --- answers

    def learn(self, step: Step, request: Message, answer: Any) -> None:
        self._memory.learn(step["api"], request, answer)
        if step["api"] == "JoinGroup":
            self._symbols["<member>"] = answer.member_id or self._symbols["<member>"]
            self._symbols["<generation>"] = answer.generation_id
        elif step["api"] == "Fetch":
            self._symbols["<session>"] = answer.session_id or self._symbols["<session>"]
        elif step["api"] in ("InitProducerId", "EndTxn"):
            self._wait_for_markers()
        elif step["api"] in SHARE_LEADERS and request.share_session_epoch == -1:
            time.sleep(RELEASE_S)
        elif step["api"] == "ShareGroupHeartbeat" and not answer.error_code and answer.member_epoch > 0:
            self._wait_for_share_partitions(request)

    def _wait_for_markers(self) -> None:
        names = [self._symbols[f"<{each}>"] for each in TRANSACTIONAL_IDS if f"<{each}>" in self._mentioned]
        if names:
            self._talk.until(
                DescribeTransactionsRequest(transactional_ids=names),
                lambda answer: not any(each.transaction_state in TRANSIENT for each in answer.transaction_states),
            )

    def _wait_for_share_partitions(self, request: Any) -> None:
        """Of a subscription. A group that goes on where it was begins nothing."""
        wanted = {each.name for each in self._topics.values()} & set(request.subscribed_topic_names or ())
        end = time.monotonic() + BACKGROUND_S
        while wanted and time.monotonic() < end:
            [group] = self._talk.do(offsets_of(request.group_id)).groups
            wanted -= {each.topic_name for each in group.topics}

    def arrange(self, answer: Any) -> None:
        """Puts every list of structs into one order: Kafka's is often that of a hash map."""
        if (found := OF_ALL_TELLINGS.get(type(answer).__name__)) is not None:
            name, key = found
            setattr(answer, name, [each for each in getattr(answer, name) if self._is_ours(each, key)])
        self._arrange(answer, {topic.id: kind for kind, topic in self._topics.items()})

    def _is_ours(self, item: Any, key: str) -> bool:
        return self._talk.run in getattr(item, key) or getattr(item, "resource_type", 2) in WITHOUT_NAMES_OF_OURS

    def _arrange(self, struct: Struct, order: dict[bytes, str]) -> None:
        for name, field in struct.wire_fields.items():
            items = getattr(struct, name)
            if isinstance(items, Struct):
                self._arrange(items, order)
            elif isinstance(field.type, Array) and isinstance(field.type.item, type) and items:
                for each in items:
                    self._arrange(each, order)
                setattr(struct, name, sorted(items, key=lambda each: _rank(each, order)))
            elif isinstance(field.type, Array) and items and name in UNORDERED:
                setattr(struct, name, sorted(items))


def _rank(struct: Struct, order: dict[bytes, str]) -> tuple[str, ...]:
    ranks = []
    for name in (*RANKED_BY, "partition", "producer_id"):
        value = getattr(struct, name, "")
        ranks.append(
            order.get(value, value.hex())
            if isinstance(value, bytes)
            else f"{value:020}"
            if isinstance(value, int)
            else str(value)
        )
    return tuple(ranks)


def play(talk: Talk, steps: list[Step]) -> None:
    world = World(talk, steps)
    for step in steps:
        label = f"{step['api']} v{step['version']}"
        request = world.request(step)
        answer = talk.ask(request, step["version"], label=label, arrange=world.arrange)
        if answer is not None:
            world.learn(step, request, answer)


def tell(address: tuple[str, int], steps: list[Step]) -> list[tuple[str, Any]]:
    talk = Talk(address, ApiVersionsRequest, newest(ApiVersionsRequest))
    try:
        play(talk, steps)
    finally:
        talk.close()
    return talk.steps
