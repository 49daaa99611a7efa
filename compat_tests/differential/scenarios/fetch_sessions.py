"""Fetch sessions (KIP-227): what a session remembers, what an incremental answer leaves out, and how sessions end."""

from typing import Any

from compat_tests.differential.asking_reading import (
    BATCH_BYTES,
    SPARING,
    WAITS_MS,
    Read,
    delete_records,
    delete_topic,
    fetch,
    fill_batches,
    nowhere,
    read,
    stays_waiting,
)
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.messages.create_topics import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.fetch import FetchRequest, ReplicaState

SINCE = "7+"  # sessions came with v7
IDS_SINCE = 13


class Session:
    """One session of a scenario, which counts its epochs."""

    def __init__(self, talk: Talk, *reads: Read, label: str = "full fetch", **fields: Any) -> None:
        self.talk = talk
        answer = talk.ask(fetch(*reads, session_id=0, session_epoch=0, **fields), label=label)
        self.id = answer.session_id
        self.epoch = 1

    def request(self, *reads: Read, **fields: Any) -> FetchRequest:
        request = fetch(*reads, session_id=self.id, session_epoch=self.epoch, **fields)
        self.epoch += 1
        return request

    def ask(self, *reads: Read, label: str, **fields: Any) -> Any:
        return self.talk.ask(self.request(*reads, **fields), label=label)


@scenario(FetchRequest, SINCE)
def what_is_left_out(talk: Talk) -> None:
    topic = talk.topic(partitions=3)
    fill_batches(talk, topic, 1)
    session = Session(talk, *[read(topic, partition=index) for index in range(3)])
    session.ask(label="records not taken up come again")
    session.ask(read(topic, 1), label="taken up")
    session.ask(label="nothing new")
    fill_batches(talk, topic, 1, partition=2)
    session.ask(label="records of another partition")
    session.ask(read(topic, 1, partition=2), label="these taken up")
    fill_batches(talk, topic, 2, partition=1)
    session.ask(read(topic, 2, partition=1), label="only the high watermark moved")
    session.ask(label="nothing new again")
    delete_records(talk, topic, before=1)
    session.ask(label="the log start moved")
    session.ask(label="nothing new after that")


@scenario(FetchRequest, SINCE)
def changes_of_what_is_asked(talk: Talk) -> None:
    one, two = talk.topic("one", partitions=2), talk.topic("two")
    fill_batches(talk, one, 3)
    fill_batches(talk, two, 2)
    session = Session(talk, read(one, max_bytes=1))
    session.ask(label="the same limit")
    session.ask(read(one, max_bytes=2 * BATCH_BYTES), label="a higher limit")
    session.ask(read(two), label="a topic added")
    session.ask(read(one, partition=1), label="a partition added")
    session.ask(label="the same again")
    session.ask(forgotten=[(two, 0)], label="a topic forgotten")
    session.ask(label="still forgotten")
    session.ask(forgotten=[(one, 1), (one, 7), (two, 0), (nowhere(talk), 0)], label="forgotten what was not there")
    session.ask(read(two, 1), read(one, 2), forgotten=[(two, 0)], label="added and forgotten at once")
    session.ask(read(one, 3), read(one, 1), label="a partition twice")
    session.ask(label="the last of them counts")


@scenario(FetchRequest, SINCE)
def errors_in_a_session(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    fill_batches(talk, topic, 1)
    unknown = nowhere(talk)
    session = Session(talk, read(unknown), read(topic, partition=2), read(topic, 9), read(topic, 1, partition=1))
    session.ask(label="errors are told each time")
    session.ask(read(topic, 1), label="back in range")
    session.ask(label="no news of it")
    session.ask(read(topic, current_leader_epoch=5), label="an epoch that is not yet")
    session.ask(read(topic, 1), label="without it")
    session.ask(read(topic, 4, last_fetched_epoch=0), label="diverging")
    session.ask(label="told again")
    session.ask(forgotten=[(unknown, 0)], label="the unknown forgotten")


@scenario(FetchRequest, SINCE)
def partitions_that_come_later(talk: Talk) -> None:
    topic = talk.topic()
    session = Session(talk, read(topic, partition=1), read(topic))
    more = CreatePartitionsTopic(name=topic.name, count=2, assignments=None)
    answer = talk.do(CreatePartitionsRequest(topics=[more], timeout_ms=30_000, validate_only=False))
    assert answer.results[0].error_code == 0, answer
    talk.known_topic("topic", partitions=2)
    session.ask(label="the partition is there now")
    session.ask(label="no news")
    fill_batches(talk, topic, 1, partition=1)
    session.ask(label="records")


@scenario(FetchRequest, SINCE)
def a_topic_that_goes(talk: Talk) -> None:
    topic, other = talk.topic(), talk.topic("other")
    fill_batches(talk, topic, 1)
    session = Session(talk, read(topic), read(other))
    delete_topic(talk, topic)
    session.ask(label="deleted")
    again = talk.topic()
    fill_batches(talk, again, 1)
    session.ask(label="made anew")
    session.ask(read(again), label="asked for anew")


@scenario(FetchRequest, SINCE)
def wrong_ids_and_epochs(talk: Talk) -> None:
    topic = talk.topic()
    session = Session(talk, read(topic))
    for epoch in (2, 0x7FFFFFFF, -2):
        talk.ask(fetch(session_id=session.id, session_epoch=epoch), label=f"epoch {epoch} in place of 1")
    session.ask(label="epoch 1")
    talk.ask(fetch(session_id=session.id, session_epoch=1), label="epoch 1 again")
    for number in (0, 1, -5):
        for epoch in (1, -2):
            talk.ask(
                fetch(read(topic), session_id=number, session_epoch=epoch), label=f"session {number}, epoch {epoch}"
            )
    session.ask(label="epoch 2")


@scenario(FetchRequest, SINCE)
def how_sessions_end(talk: Talk) -> None:
    topic = talk.topic()
    session = Session(talk, read(topic))
    session.ask(forgotten=[(topic, 0)], label="the last partition forgotten")
    session.ask(label="after that")

    session = Session(talk, read(topic))
    fill_batches(talk, topic, 1)
    talk.ask(fetch(read(topic), session_id=session.id, session_epoch=-1), label="closed, and read once more")
    session.ask(label="after it was closed")

    session = Session(talk, read(topic))
    talk.ask(fetch(session_id=session.id, session_epoch=0), label="replaced by a session of nothing")
    session.ask(label="after it was replaced")

    talk.ask(fetch(read(topic), session_id=1, session_epoch=-1), label="an unknown one closed")
    talk.ask(fetch(read(topic), session_id=1, session_epoch=0), label="an unknown one replaced")
    session = Session(talk, label="a session of nothing")
    session.ask(label="nothing, incrementally")
    session.ask(read(topic), label="and something added")


@scenario(FetchRequest, SINCE)
def names_and_ids(talk: Talk) -> None:
    """A session that was made with names takes no ids, and the other way round."""
    topic = talk.topic()
    session = Session(talk, read(topic))
    other = IDS_SINCE - 1 if talk.version >= IDS_SINCE else IDS_SINCE
    talk.ask(fetch(session_id=session.id, session_epoch=1), other, label="the other kind")
    session.ask(label="the own kind")
    talk.ask(fetch(read(topic), session_id=session.id, session_epoch=-1), other, label="closed with the other kind")
    session.ask(label="after that")


@scenario(FetchRequest, SINCE)
def everybody_gets_a_turn(talk: Talk) -> None:
    """What returned records goes to the end of the order."""
    one, two = talk.topic("one", partitions=2), talk.topic("two")
    for topic, partition in ((one, 0), (one, 1), (two, 0)):
        fill_batches(talk, topic, 2, partition)
    session = Session(talk, read(one), read(one, partition=1), read(two), max_bytes=1)
    for turn in range(4):
        session.ask(max_bytes=1, label=f"turn {turn}")
    session.ask(max_bytes=2 * BATCH_BYTES, label="two of them")
    session.ask(label="all of them")


@scenario(FetchRequest, SINCE)
def two_at_once(talk: Talk) -> None:
    """A session serves one request at a time: the next one invalidates the answer that is still waited for."""
    topic = talk.topic()
    session = Session(talk, read(topic))
    waiting = talk.link("waiting")
    waiting.send(session.request(max_wait_ms=WAITS_MS), label="epoch 1, waiting")
    stays_waiting(talk, waiting)
    session.ask(label="epoch 2, at once")
    fill_batches(talk, topic, 1)
    waiting.receive()
    session.ask(label="epoch 3")


@scenario(FetchRequest, SINCE)
def waiting_in_a_session(talk: Talk) -> None:
    """What there is nothing new of does not end the wait; what is told is what changed."""
    topic = talk.topic(partitions=2)
    session = Session(talk, read(topic), read(topic, partition=1))
    main = talk.link()
    main.send(session.request(max_wait_ms=WAITS_MS), label="incremental")
    stays_waiting(talk, main)
    fill_batches(talk, topic, 1, partition=1)
    main.receive()
    session.ask(read(topic, 1, partition=1), max_wait_ms=30, label="nothing within 30 ms")
    session.ask(read(nowhere(talk)), max_wait_ms=30, label="an unknown topic added")


@scenario(FetchRequest, SINCE)
def sessions_of_replicas(talk: Talk) -> None:
    topic = talk.topic()
    session = Session(talk, read(topic), replica_id=5, replica_state=ReplicaState(replica_id=5))
    session.ask(label="as a consumer")
    session.ask(replica_id=5, replica_state=ReplicaState(replica_id=5), label="as a replica")


@scenario(FetchRequest, SINCE, settings=SPARING)
def no_room_for_sessions(talk: Talk) -> None:
    topic = talk.topic()
    session = Session(talk, read(topic))
    session.ask(label="there is no session")


@scenario(FetchRequest, SINCE)
def sessions_of_another_connection(talk: Talk) -> None:
    """A session belongs to whoever knows its id."""
    topic = Topic(*talk.topic())
    session = Session(talk, read(topic))
    fill_batches(talk, topic, 1)
    talk.ask(session.request(), of="another", label="with the id")
    session.ask(read(topic, 1), label="and back")
