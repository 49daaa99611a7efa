"""Fetch without waiting and without sessions: offsets, limits, order, fencing, isolation, and what cannot be read."""

from compat_tests.differential.asking_reading import (
    BATCH_BYTES,
    SPARING,
    WAITS_MS,
    a_batch,
    append,
    delete_records,
    delete_topic,
    fetch,
    fill_batches,
    nowhere,
    read,
)
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.messages.fetch import FetchRequest, ReplicaState
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Compression, Record
from ottla.wire.schema import ZERO_UUID

FAR = 1 << 62
LIMITS = (-1, 0, 1, BATCH_BYTES - 1, BATCH_BYTES, 2 * BATCH_BYTES - 1, 2 * BATCH_BYTES, 3 * BATCH_BYTES)


@scenario(FetchRequest)
def offsets(talk: Talk) -> None:
    topic = talk.topic()
    for offset in (-2, -1, 0, 1):
        talk.ask(fetch(read(topic, offset)), label=f"{offset} of an empty log")
    append(talk, topic, *[a_batch(records=2)] * 3)
    for offset in (-1, 0, 1, 2, 5, 6, 7, FAR):
        talk.ask(fetch(read(topic, offset)), label=f"{offset}")
    delete_records(talk, topic, before=3)
    for offset in (0, 2, 3, 4):
        talk.ask(fetch(read(topic, offset)), label=f"{offset} after 0-2 were deleted")
    delete_records(talk, topic, before=6)
    for offset in (5, 6):
        talk.ask(fetch(read(topic, offset)), label=f"{offset} after all were deleted")


@scenario(FetchRequest)
def unknown_partitions(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    fill_batches(talk, topic, 1)
    unknown = nowhere(talk)
    talk.ask(fetch(), label="no topics")
    for index in (2, -1):
        talk.ask(fetch(read(topic, partition=index)), label=f"partition {index}")
    talk.ask(fetch(read(unknown), read(unknown, partition=1)), label="unknown topic")
    talk.ask(fetch(read(unknown), read(topic), read(topic, partition=2), read(topic, partition=1)), label="among good")
    mixed = read(topic, partition=2), read(unknown), read(topic, partition=3), read(unknown, partition=1), read(topic)
    talk.ask(fetch(*mixed), label="unknown ids are told first")
    state = ReplicaState(replica_id=5)
    talk.ask(fetch(*mixed, replica_id=5, replica_state=state), label="but not to replicas")
    talk.ask(fetch(read(Topic("", ZERO_UUID))), label="neither name nor id")
    talk.ask(fetch(read(Topic("a b", bytes([8] * 16)))), label="a name that cannot be")


@scenario(FetchRequest)
def order_and_duplicates(talk: Talk) -> None:
    one, two = talk.topic("one", partitions=3), talk.topic("two")
    fill_batches(talk, one, 1)
    fill_batches(talk, two, 1)
    talk.ask(fetch(read(one, partition=2), read(two), read(one), read(one, partition=1)), label="topics interleaved")
    talk.ask(fetch(read(one), read(one, 1)), label="a partition twice in a row")
    talk.ask(fetch(read(one, 1), read(two), read(one, 0)), label="a partition in two entries")
    request = fetch(read(one), read(two))
    request.topics[0].partitions = []
    talk.ask(request, label="a topic without partitions")


@scenario(FetchRequest)
def partition_limits(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    fill_batches(talk, topic, 3)
    fill_batches(talk, topic, 3, partition=1)
    for limit in LIMITS:
        asked = fetch(read(topic, max_bytes=limit), read(topic, partition=1, max_bytes=limit))
        talk.ask(asked, label=f"{limit} bytes of each")


@scenario(FetchRequest)
def answer_limits(talk: Talk) -> None:
    topic = talk.topic(partitions=3)
    for index in (1, 2):
        fill_batches(talk, topic, 2, partition=index)
    for limit in (*LIMITS, 4 * BATCH_BYTES):
        asked = fetch(read(topic), read(topic, partition=2), read(topic, partition=1), max_bytes=limit)
        talk.ask(asked, label=f"{limit} bytes in all")
    asked = fetch(read(topic, 7), read(topic, 1, partition=2), read(topic, partition=1), max_bytes=1)
    talk.ask(asked, label="a first partition out of range")
    asked = fetch(read(topic, 2, partition=1), read(topic, partition=2), max_bytes=1)
    talk.ask(asked, label="a first partition that is read to its end")


@scenario(FetchRequest, settings=SPARING)
def limits_of_a_sparing_broker(talk: Talk) -> None:
    """fetch.max.bytes is 1024."""
    topic = talk.topic(partitions=2)
    fill_batches(talk, topic, 8)
    fill_batches(talk, topic, 8, partition=1)
    talk.ask(fetch(read(topic), read(topic, partition=1)), label="of both")
    talk.ask(fetch(read(topic, 5), read(topic, partition=1), max_bytes=500), label="less than the broker's limit")
    asked = fetch(read(topic), read(topic, partition=1), min_bytes=1 << 20, max_wait_ms=WAITS_MS)
    talk.ask(asked, label="more wanted than the broker gives")
    append(talk, topic, a_batch(records=40))
    talk.ask(fetch(read(topic, 8)), label="a batch beyond the limit")


@scenario(FetchRequest)
def leader_epochs(talk: Talk) -> None:
    topic = talk.topic()
    fill_batches(talk, topic, 2)
    for epoch in (-2, -1, 0, 1, 7):
        talk.ask(fetch(read(topic, current_leader_epoch=epoch)), label=f"leader epoch {epoch}")
    both = read(topic, 5, current_leader_epoch=1, last_fetched_epoch=3)
    talk.ask(fetch(both), label="a newer leader epoch comes first")


@scenario(FetchRequest)
def diverging_epochs(talk: Talk) -> None:
    topic, empty = talk.topic(), talk.topic("empty")
    fill_batches(talk, topic, 2)
    for epoch in (-2, -1, 0, 1):
        for offset in (0, 1, 2, 3):
            label = f"offset {offset} after epoch {epoch}"
            talk.ask(fetch(read(topic, offset, last_fetched_epoch=epoch)), label=label)
    for epoch in (-1, 0, 1):
        for offset in (0, 1):
            label = f"offset {offset} after epoch {epoch} of an empty log"
            talk.ask(fetch(read(empty, offset, last_fetched_epoch=epoch)), label=label)
    delete_records(talk, topic, before=1)
    talk.ask(fetch(read(topic, 0, last_fetched_epoch=0)), label="below the log start")
    delete_records(talk, topic, before=2)
    for offset in (1, 2, 3):
        talk.ask(fetch(read(topic, offset, last_fetched_epoch=0)), label=f"offset {offset} when all were deleted")


@scenario(FetchRequest)
def isolation_levels(talk: Talk) -> None:
    topic = talk.topic()
    talk.ask(fetch(read(topic), isolation_level=1), label="read committed of an empty log")
    fill_batches(talk, topic, 2)
    for level in (0, 1, 2, -1):
        talk.ask(fetch(read(topic), isolation_level=level), label=f"level {level}")
    talk.ask(fetch(read(topic, 2), isolation_level=1), label="read committed at the end")
    talk.ask(fetch(read(topic, 3), isolation_level=1), label="read committed beyond the end")
    talk.ask(fetch(read(nowhere(talk)), isolation_level=2), label="level 2 of an unknown topic")


@scenario(FetchRequest)
def replicas(talk: Talk) -> None:
    """Who asks as a follower has to be one. Broker 0 is the leader, there is no other."""
    topic = talk.topic()
    fill_batches(talk, topic, 1)
    for replica in (-3, -2, -1, 0, 5):
        state = ReplicaState(replica_id=replica)
        asked = fetch(read(topic), replica_id=replica, replica_state=state)
        talk.ask(asked, label=f"replica {replica}")
        asked = fetch(read(topic, current_leader_epoch=0), replica_id=replica, replica_state=state)
        talk.ask(asked, label=f"replica {replica} with the leader epoch")
    state = ReplicaState(replica_id=5)
    for label, each in (("an unknown topic", read(nowhere(talk))), ("beyond the end", read(topic, 9))):
        talk.ask(fetch(each, replica_id=5, replica_state=state), label=f"replica 5, {label}")


@scenario(FetchRequest, versions="11+")
def rack_and_cluster(talk: Talk) -> None:
    """Since v11 a consumer says where it is; since v12 which cluster it means."""
    topic = talk.topic()
    fill_batches(talk, topic, 1)
    talk.ask(fetch(read(topic), rack_id="here"), label="a rack")
    talk.ask(fetch(read(topic), cluster_id="another"), label="another cluster")
    talk.ask(fetch(read(topic, log_start_offset=5, high_watermark=9, replica_directory_id=bytes([9] * 16))))


@scenario(FetchRequest)
def a_topic_that_was_deleted(talk: Talk) -> None:
    topic = talk.topic()
    fill_batches(talk, topic, 1)
    delete_topic(talk, topic)
    talk.ask(fetch(read(topic)), label="deleted")
    again = talk.topic()
    talk.ask(fetch(read(topic)), label="the former id")
    talk.ask(fetch(read(again)), label="the new id")


@scenario(FetchRequest)
def compressed_records(talk: Talk) -> None:
    """Batches travel as they were written, where the version knows them."""
    topic = talk.topic(partitions=5)
    for index, codec in enumerate(Compression):
        append(talk, topic, a_batch(records=3, compression=codec), a_batch(records=2), partition=index)
        talk.ask(fetch(read(topic, partition=index)), label=codec.name)
        talk.ask(fetch(read(topic, 1, partition=index)), label=f"{codec.name} from within")
        talk.ask(fetch(read(topic, 3, partition=index)), label=f"after {codec.name}")


@scenario(FetchRequest)
def records_of_many_kinds(talk: Talk) -> None:
    topic = talk.topic()
    records = [
        Record(0, 1000, b"key", b"value", ((b"h", b"1"), (b"none", None))),
        Record(1, 999, b"key", None),
        Record(2, 1001, b"", b""),
        Record(3, -1, None, b"\x00" * 40),
    ]
    append(talk, topic, encode_batch(records[:3]), encode_batch(records[1:]), encode_batch(records[:2], producer_id=-1))
    talk.ask(fetch(read(topic)), label="all")
    talk.ask(fetch(read(topic, 4, max_bytes=1)), label="one batch from within")


@scenario(FetchRequest)
def a_great_many_partitions(talk: Talk) -> None:
    """More than are read in one piece of work."""
    topic = talk.topic(partitions=3)
    fill_batches(talk, topic, 2, partition=2)
    reads = [read(topic, partition=index) for index in range(2500, -1, -1)]
    answer = talk.do(fetch(*reads, max_wait_ms=WAITS_MS, min_bytes=2 * BATCH_BYTES), talk.version)
    told = answer.responses[0].partitions
    talk.note("the first", [[each.partition_index, each.error_code, each.high_watermark] for each in told[:4]])
    talk.note("the others", sorted({(each.error_code, each.high_watermark) for each in told[3:]}))
    talk.note("their order", [each.partition_index for each in told[3:]] == list(range(2500, 2, -1)))
    answer = talk.do(fetch(*reads, max_wait_ms=30, min_bytes=1000), talk.version)
    talk.note("after some waiting", [len(answer.responses), len(answer.responses[0].partitions)])
