"""Fetches that wait: for how much, for how long, and what ends the wait before."""

from compat_tests.differential.asking_reading import (
    BATCH_BYTES,
    WAITS_MS,
    Read,
    append,
    delete_records,
    delete_topic,
    fetch,
    fill_batches,
    nowhere,
    read,
    stays_waiting,
)
from compat_tests.differential.conversation import Link, Talk, scenario

from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record, iter_batches

SOON_MS = 30


def wait_for(talk: Talk, *reads: Read, label: str = "", min_bytes: int = 1, max_bytes: int = 1 << 20) -> Link:
    """A fetch on its way, which is not answered at once."""
    link = talk.link()
    link.send(fetch(*reads, max_wait_ms=WAITS_MS, min_bytes=min_bytes, max_bytes=max_bytes), label=label or None)
    stays_waiting(talk, link)
    return link


@scenario(FetchRequest)
def woken_by_a_producer(talk: Talk) -> None:
    topic = talk.topic()
    link = wait_for(talk, read(topic), label="at the end of an empty log")
    fill_batches(talk, topic, 1)
    link.receive()
    link = wait_for(talk, read(topic, 1), label="at the end of a log")
    fill_batches(talk, topic, 1)
    link.receive()


@scenario(FetchRequest)
def enough_only_later(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    fill_batches(talk, topic, 1)
    reads = read(topic), read(topic, partition=1)
    link = wait_for(talk, *reads, min_bytes=3 * BATCH_BYTES, label="one of three is there")
    fill_batches(talk, topic, 1, partition=1)
    stays_waiting(talk, link)
    fill_batches(talk, topic, 1, partition=1)
    link.receive()


@scenario(FetchRequest)
def not_enough_in_time(talk: Talk) -> None:
    topic = talk.topic()
    talk.ask(fetch(read(topic), max_wait_ms=SOON_MS), label="nothing")
    fill_batches(talk, topic, 1)
    talk.ask(fetch(read(topic), max_wait_ms=SOON_MS, min_bytes=1000), label="something")
    talk.ask(fetch(read(topic, 1), max_wait_ms=SOON_MS), label="nothing more")


@scenario(FetchRequest)
def no_reason_to_wait(talk: Talk) -> None:
    """Each of these is answered long before its time is over."""
    topic = talk.topic(partitions=2)
    fill_batches(talk, topic, 2, partition=1)
    empty, full = read(topic), read(topic, partition=1)

    def ask(
        label: str, *reads: Read, min_bytes: int = 1, max_wait_ms: int = WAITS_MS, max_bytes: int = 1 << 20
    ) -> None:
        talk.ask(fetch(*reads, min_bytes=min_bytes, max_wait_ms=max_wait_ms, max_bytes=max_bytes), label=label)

    ask("no time", empty, max_wait_ms=0)
    ask("less than no time", empty, max_wait_ms=-1)
    ask("no bytes needed", empty, min_bytes=0)
    ask("less than none needed", empty, min_bytes=-1)
    ask("enough there", empty, full, min_bytes=2 * BATCH_BYTES)
    ask("nothing asked for")
    ask("only unknown topics", read(nowhere(talk)), read(topic, partition=2))
    ask("out of range", empty, read(topic, 9))
    ask("out of range beside an unknown topic", empty, read(nowhere(talk)), read(topic, 9))


@scenario(FetchRequest)
def limits_below_what_is_wanted(talk: Talk) -> None:
    """A partition counts with what it could give, up to its own limit; the answer's limit counts for the least wanted."""
    topic = talk.topic(partitions=2)
    fill_batches(talk, topic, 2)
    fill_batches(talk, topic, 2, partition=1)
    small = read(topic, max_bytes=150), read(topic, partition=1, max_bytes=150)
    tiny = read(topic, max_bytes=50), read(topic, partition=1, max_bytes=50)

    def ask(label: str, *reads: Read, min_bytes: int, max_bytes: int = 1 << 20) -> None:
        talk.ask(fetch(*reads, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=WAITS_MS), label=label)

    ask("a batch and a half of each", *small, min_bytes=300)
    ask("half a batch of each", *tiny, min_bytes=100)
    ask("half a batch of one", tiny[0], min_bytes=50)
    link = wait_for(talk, *small, min_bytes=301, label="one byte more than their limits")
    fill_batches(talk, topic, 1)
    stays_waiting(talk, link)
    link.close()


@scenario(FetchRequest, versions="3+")
def limits_of_the_answer(talk: Talk) -> None:
    """v3 brought the limit of the whole answer: whoever wants more than that gets as much as it allows."""
    topic = talk.topic(partitions=2)
    fill_batches(talk, topic, 2)
    fill_batches(talk, topic, 2, partition=1)
    both = read(topic), read(topic, partition=1)
    for limit in (1, 100, 150, 250):
        asked = fetch(*both, min_bytes=1 << 20, max_bytes=limit, max_wait_ms=WAITS_MS)
        talk.ask(asked, label=f"more wanted than {limit} bytes")


@scenario(FetchRequest)
def several_partitions(talk: Talk) -> None:
    one, two = talk.topic("one", partitions=2), talk.topic("two")
    reads = read(one), read(one, partition=1), read(two)
    link = wait_for(talk, *reads, label="three partitions")
    fill_batches(talk, two, 1)
    link.receive()
    link = wait_for(talk, read(nowhere(talk)), read(one, partition=9), *reads[:2], label="and some that are unknown")
    fill_batches(talk, one, 1, partition=1)
    link.receive()


@scenario(FetchRequest)
def records_elsewhere_wake_nobody(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    link = wait_for(talk, read(topic))
    fill_batches(talk, topic, 1, partition=1)
    stays_waiting(talk, link)
    fill_batches(talk, topic, 1)
    link.receive()


@scenario(FetchRequest)
def the_topic_goes(talk: Talk) -> None:
    topic, other = talk.topic(), talk.topic("other")
    link = wait_for(talk, read(other), read(topic))
    delete_topic(talk, topic)
    link.receive()


@scenario(FetchRequest)
def others_wait_behind(talk: Talk) -> None:
    """The answers of one connection come in the order of its requests."""
    topic = talk.topic()
    link = talk.link()
    link.send(fetch(read(topic), max_wait_ms=WAITS_MS))
    link.send(MetadataRequest(topics=[]))
    link.send(fetch(read(topic, 1)), label="second fetch")
    stays_waiting(talk, link)
    fill_batches(talk, topic, 1)
    for _ in range(3):
        link.receive()


@scenario(FetchRequest)
def leaving_while_waiting(talk: Talk) -> None:
    topic = talk.topic()
    wait_for(talk, read(topic)).close()
    fill_batches(talk, topic, 1)
    talk.ask(fetch(read(topic)), of="another")


@scenario(FetchRequest)
def records_deleted_meanwhile(talk: Talk) -> None:
    topic = talk.topic()
    fill_batches(talk, topic, 1)
    link = wait_for(talk, read(topic), min_bytes=2 * BATCH_BYTES, label="one of two")
    delete_records(talk, topic, before=1)
    stays_waiting(talk, link)
    fill_batches(talk, topic, 1)
    link.receive()


@scenario(FetchRequest, versions="4+")
def behind_the_last_segment(talk: Talk) -> None:
    """Who reads an older segment is not kept waiting. Before v4 records are converted, which would make this slow."""
    topic = talk.topic(segment_bytes=str(1 << 20))
    large = encode_batch([Record(0, 1000, None, bytes(600_000))])
    append(talk, topic, large, large)
    request = fetch(read(topic), max_wait_ms=WAITS_MS, min_bytes=50 << 20, max_bytes=50 << 20)
    answer = talk.do(request, talk.version)
    talk.note("offsets", [header.base_offset for header, *_ in iter_batches(answer.responses[0].partitions[0].records)])
