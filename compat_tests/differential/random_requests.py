"""Random but valid requests over a small world, made from the wire declarations.

A step is plain data, so that a sequence can be kept as a file and read again:

    {"api": "ListOffsets", "version": 7, "fields": {"topics": [{"name": "<one>", ...}]}}

Fields that are left out have their defaults. `random_world.py` tells steps. Records are described by a dictionary, see
`records_of` there.

Every served request is drawn in every version that Apache Kafka 4 speaks, but for those of `LEFT_OUT`. What changes
the cluster is only validated, because Kafka's own brokers learn of such changes one after the other. Values come from
`VALUES`, by the name of the field. Sequences have a theme (`random_themes.py`), or are about anything.
"""

import functools
from collections.abc import Callable
from typing import Any

from compat_tests.differential.conversation import newest, release_for
from compat_tests.differential.random_themes import THEMES, Line
from compat_tests.differential.random_values import (
    DEFAULTED,
    INT16_MAX,
    INT32_MAX,
    LEFT_OUT,
    NEVER_ALL,
    NEVER_EMPTY,
    RANKED_BY,
    VALUES,
    WHOLE,
    topic_names,
)
from compat_tests.differential.random_world import REQUESTS, TOPICS, Step
from hypothesis import strategies as st

from ottla.server.dispatch.dispatch import served_routes
from ottla.wire.schema import Array, Field, Message, Records, Struct, VersionRange

STEPS_MAX = 10
ANYTHING = "anything"
RELEASE = 2  # a type of acknowledgement
WEIGHTS = {"ProduceRequest": 4, "FetchRequest": 4, "OffsetCommitRequest": 2, "JoinGroupRequest": 2}


# --- drawing ----------------------------------------------------------------------------------------------------------


@functools.cache
def served() -> list[tuple[type[Message], int]]:
    """Every request that is drawn, in every version."""
    found = [
        (route.request_class, version)
        for route in served_routes(is_in_cluster=False).values()
        for version in range(route.versions.first, newest(route.request_class) + 1)
        if route.name not in LEFT_OUT and release_for(route.request_class, version) == "kafka_4"
    ]
    return sorted(found, key=lambda each: (each[0].api_key, each[1]))


def sequences(theme: str) -> st.SearchStrategy[list[Step]]:
    if theme == ANYTHING:
        choices = [
            _drawn_freely(request.__name__.removesuffix("Request"))
            for request in dict.fromkeys(request for request, _ in served())
            for _ in range(WEIGHTS.get(request.__name__, 1))
        ]
        return st.lists(st.one_of(choices), min_size=1, max_size=STEPS_MAX).map(without_chance)
    opening, lines, others, steps_max = THEMES[theme]
    said = st.one_of([_said(line) for line in lines])
    first = st.tuples(*(_said(line) for line in opening)).map(list)
    rest = st.lists(said | said | said | st.one_of([_drawn_freely(each) for each in others]), max_size=steps_max)
    return st.tuples(st.just([]) | first | first, rest).map(lambda both: without_chance([*both[0], *both[1]]))


def _versions_of(api: str) -> list[int]:
    return [version for request, version in served() if request is REQUESTS[api]]


def _drawn_freely(api: str) -> st.SearchStrategy[Step]:
    return st.sampled_from(_versions_of(api)).flatmap(_steps_of(REQUESTS[api]))


def _said(line: Line) -> st.SearchStrategy[Step]:
    """A line of a theme, of which at most two fields are not as they should be."""
    api, fields = line
    request = REQUESTS[api]

    def in_version(version: int) -> st.SearchStrategy[Step]:
        names = _names_of(request, version)
        as_said = st.fixed_dictionaries({name: _choice(fields[name]) for name in names if name in fields})
        replaced = st.lists(st.sampled_from(names), max_size=2, unique=True) if names else st.just([])
        wrong = replaced.flatmap(
            lambda chosen: st.fixed_dictionaries(
                {name: _values_of(request, name, request.wire_fields[name], version) for name in chosen}
            )
        )
        step = {"api": st.just(api), "version": st.just(version)}
        drawn = st.tuples(as_said, st.just({}) | st.just({}) | wrong).map(lambda both: both[0] | both[1])
        return st.fixed_dictionaries(step | {"fields": drawn})

    return st.sampled_from(_versions_of(api)).flatmap(in_version)


def _choice(said: Any) -> st.SearchStrategy[Any]:
    """What a line says, where a tuple leaves a choice."""
    if isinstance(said, tuple):
        return st.sampled_from(said).flatmap(_choice)
    if isinstance(said, dict):
        return st.fixed_dictionaries({name: _choice(value) for name, value in said.items()})
    if isinstance(said, list):
        return st.tuples(*(_choice(each) for each in said)).map(list)
    return st.just(said)


def _steps_of(request: type[Message]) -> Callable[[int], st.SearchStrategy[Step]]:
    def steps(version: int) -> st.SearchStrategy[Step]:
        name = request.__name__.removesuffix("Request")
        return st.fixed_dictionaries(
            {"api": st.just(name), "version": st.just(version), "fields": fields_of(request, version)}
        )

    return steps


def without_chance(steps: list[Step]) -> list[Step]:
    """Without what would wait, what Kafka answers now so and now otherwise or never, and a mistake of Kafka's.

    A second new member would wait for the first one to join again: only members join a group twice. In Kafka a fetch that
    does not wait finds what it releases itself if that was written down fast enough. A member of a consumer group that
    takes an instance id while it is in is given no partition until the next assignment (`allowed.py`).
    """
    joined: set[str] = set()
    without_instance: set[tuple[str, str]] = set()
    kept = []
    for step in steps:
        if step["api"] == "ConsumerGroupHeartbeat":
            member = step["fields"]["group_id"], step["fields"]["member_id"]
            if step["fields"]["instance_id"] is None:
                without_instance.add(member)
            elif member in without_instance:
                continue
        if step["api"] == "ShareFetch" and RELEASE in _acknowledge_types(step):
            continue
        if step["api"] == "WriteTxnMarkers" and _may_be_unanswered(step["fields"]["markers"]):
            continue
        if step["api"] == "JoinGroup" and step["fields"]["member_id"] != "<member>":
            if step["fields"]["group_id"] in joined:
                continue
            joined.add(step["fields"]["group_id"])
        kept.append(step)
    return kept


def _may_be_unanswered(markers: list[dict[str, Any]]) -> bool:
    """Whether one that concerns no partition which is there comes behind one that does.

    Kafka passes over it; if the others are written by then nobody sends the answer (`handleWriteTxnMarkersRequest`).
    """
    count = {f"<{kind}>": partitions for kind, partitions in TOPICS.items()}
    concern_one = [
        any(
            0 <= index < count.get(topic["name"], 0)
            for topic in marker["topics"]
            for index in topic["partition_indexes"]
        )
        for marker in markers
    ]
    return True in concern_one and not all(concern_one[concern_one.index(True) :])


def _acknowledge_types(step: Step) -> set[int]:
    return {
        kind
        for topic in step["fields"]["topics"]
        for partition in topic["partitions"]
        for batch in partition["acknowledgement_batches"]
        for kind in batch["acknowledge_types"]
    }


def _names_of(struct: type[Struct], version: int) -> list[str]:
    fields = struct.wire_fields.items()
    return [name for name, field in fields if version in VersionRange.parse(field.versions) and field.tag is None]


def fields_of(struct: type[Struct], version: int) -> st.SearchStrategy[dict[str, Any]]:
    names = _names_of(struct, version)
    return st.fixed_dictionaries({name: _values_of(struct, name, struct.wire_fields[name], version) for name in names})


def _values_of(struct: type[Struct], name: str, field: Field, version: int) -> st.SearchStrategy[Any]:
    full_name = f"{struct.__name__}.{name}"
    known = VALUES.get(full_name, VALUES.get(name))
    is_nullable = version in VersionRange.parse(field.nullable)
    whole = WHOLE.get(full_name, WHOLE.get(name))
    if whole is not None:
        return st.sampled_from(whole)
    if isinstance(field.type, Array):
        is_never_all = full_name in (*NEVER_ALL, *NEVER_EMPTY)
        items = _items_of(field.type, version, known)
        # One of a name, since what is asked twice is answered once or twice, which has scenarios of its own.
        drawn: st.SearchStrategy[Any] = st.lists(items, min_size=int(is_never_all), max_size=2, unique_by=_identity)
        return drawn | st.none() if is_nullable and not is_never_all else drawn
    if field.type is Records:
        return record_sets()
    if known is not None:
        if struct.__name__ == "MetadataRequestTopic" and version < 4:  # which creates what it does not find
            known = topic_names[:4]
        return st.sampled_from([value for value in known if value is not None or is_nullable])
    if isinstance(field.type, type) and is_nullable:
        return st.none() | fields_of(field.type, version)
    assert full_name in DEFAULTED or name in DEFAULTED, f"no values for {full_name}"
    return st.just(_plain(field.initial()))


def _items_of(array: Array, version: int, known: tuple[Any, ...] | None) -> st.SearchStrategy[Any]:
    if isinstance(array.item, type):
        return fields_of(array.item, version)
    assert known is not None, array
    return st.sampled_from(known)


def _identity(item: Any) -> str:
    """What an item of an array is about."""
    names = [name for name in (*RANKED_BY, "partition") if name in item] if isinstance(item, dict) else []
    return str(item[names[0]] if names else item)


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else None if isinstance(value, Struct) else value


def record_sets() -> st.SearchStrategy[dict[str, Any]]:
    """Descriptions for `records_of`; mostly good batches, some with one wrong field."""
    producers = st.fixed_dictionaries(
        {
            "producer_id": st.sampled_from((-1, "<producer>", 900_001)),
            "producer_epoch": st.sampled_from((-1, 0, 1, 2, INT16_MAX, "<producer epoch>")),
            "base_sequence": st.sampled_from((-1, 0, 1, 2, 3, 4, INT32_MAX - 1, INT32_MAX, "<sequence>")),
        }
    )
    nobody = st.just({"producer_id": -1, "producer_epoch": -1, "base_sequence": -1})
    wrong = st.one_of(
        st.fixed_dictionaries({name: st.sampled_from(values)})
        for name, values in {
            "base_offset": (1,),
            "length": (0, 49),
            "magic": (0, 3),
            "crc": (0,),
            "last_offset_delta": (0, 5, -1),
            "count": (0, 2, 5, -1),
            "max_timestamp": (-1, 0),
            "leader_epoch": (0, 5),
        }.items()
    )
    return st.fixed_dictionaries(
        {
            "values": st.integers(1, 3),
            "key": st.booleans(),
            "time": st.sampled_from((1000, 1002, 5000, -1)),
            "codec": st.sampled_from((0, 0, 1, 2, 3, 4)),
            "flags": st.sampled_from((0, 0, 0, 0, 8, 16, 32, 64)),
            "producer": st.one_of(nobody, producers),
            "wrong": st.one_of(st.just({}), st.just({}), st.just({}), wrong),
        }
    )
