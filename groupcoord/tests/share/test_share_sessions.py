"""Share sessions: how they begin, go on and end, what their answers leave out, and how many there may be."""

import pytest

from ottla.groupcoord.share.partition import sessions as module
from ottla.groupcoord.share.partition.sessions import SessionKey, ShareSession, ShareSessions, TopicPartition
from ottla.wire.errors import ErrorCode, KafkaError

A, B = SessionKey("g", "a", "User:a"), SessionKey("g", "b", "User:b")


def parts(*indexes: int) -> list[TopicPartition]:
    return [TopicPartition("t", b"t" * 16, index) for index in indexes]


class Room:
    def __init__(self, limit: int = 10) -> None:
        self.ended: list[SessionKey] = []
        self.sessions = ShareSessions(lambda: limit, self._on_end)

    def _on_end(self, session: ShareSession) -> None:
        self.ended.append(session.key)


def refused(code: ErrorCode, room: Room, key: SessionKey, epoch: int, *indexes: int) -> None:
    with pytest.raises(KafkaError) as caught:
        room.sessions.advance(key, epoch, parts(*indexes))
    assert caught.value.code is code


def test_a_session_goes_on_by_the_next_epoch_only() -> None:
    room = Room()
    refused(ErrorCode.SHARE_SESSION_NOT_FOUND, room, A, 1)
    room.sessions.begin(A, parts(0), "wire")
    refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, room, A, 2)
    assert room.sessions.advance(A, 1).epoch == 2
    refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, room, A, 1)
    session = room.sessions.get(A)
    session.epoch = (1 << 31) - 1
    assert room.sessions.advance(A, session.epoch).epoch == 1


def test_partitions_come_and_go() -> None:
    room = Room()
    room.sessions.begin(A, parts(0, 1), "wire")
    session = room.sessions.advance(A, 1, parts(2, 1), parts(0))
    assert [each.partition for each in session.partitions.values()] == [1, 2]


def test_an_answer_leaves_out_what_is_no_news() -> None:
    room = Room()
    session = room.sessions.begin(A, parts(0, 1), "wire")
    first, second, third = parts(0, 1, 2)
    assert not session.must_include(first, has_records=False, has_error=False)
    assert session.must_include(first, has_records=True, has_error=False)
    assert list(session.partitions.values()) == [second, first], "who gave records goes to the end"
    session.update([third], [])
    assert session.must_include(third, has_records=False, has_error=False), "a new one is told of once"
    assert not session.must_include(third, has_records=False, has_error=False)
    assert session.must_include(second, has_records=False, has_error=True)
    assert session.must_include(second, has_records=False, has_error=False), "that the error is over is news"
    assert not session.must_include(second, has_records=False, has_error=False)


def test_a_session_ends_with_its_connection_and_not_with_another() -> None:
    room = Room()
    room.sessions.begin(A, parts(0), "old")
    room.sessions.begin(A, parts(0), "new")
    room.sessions.begin(B, parts(0), "old")
    room.sessions.disconnect("old")
    assert room.ended == [B]
    assert room.sessions.has_group("g") and len(room.sessions) == 1
    room.sessions.disconnect("new")
    assert room.ended == [B, A]
    assert not room.sessions.has_group("g") and not len(room.sessions)


def test_there_are_so_many_sessions_and_no_more() -> None:
    room = Room(limit=1)
    room.sessions.begin(A, parts(0), "wire")
    with pytest.raises(KafkaError) as caught:
        room.sessions.begin(B, parts(0), "wire")
    assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    room.sessions.begin(A, parts(0), "wire")
    room.sessions.end(A)
    room.sessions.begin(B, parts(0), "wire")


def test_a_member_that_wants_too_much_loses_the_session_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSION_PARTITIONS_MAX", 4)
    room = Room()
    room.sessions.begin(A, parts(0), "wire")
    with pytest.raises(KafkaError):
        room.sessions.begin(A, parts(*range(5)), "wire")
    assert room.ended == [A], "what it holds is released"
    room.sessions.begin(A, parts(0), "wire")
    room.sessions.check_size(A, 1, 4)
    with pytest.raises(KafkaError) as caught:
        room.sessions.check_size(A, 1, 5)
    assert caught.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert room.ended == [A, A]


def test_partitions_are_limited_in_one_session_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSION_PARTITIONS_MAX", 4)
    monkeypatch.setattr(module, "PARTITIONS_MAX", 6)
    room = Room()
    with pytest.raises(KafkaError) as caught:
        room.sessions.begin(A, parts(*range(5)), "wire")
    assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    room.sessions.begin(A, parts(0), "wire")
    refused(ErrorCode.SHARE_SESSION_NOT_FOUND, room, A, 1, 1, 2, 3, 4)
    assert room.ended == [A]
    room.sessions.begin(A, parts(0, 1, 2, 3), "wire")
    with pytest.raises(KafkaError):
        room.sessions.begin(B, parts(0, 1, 2), "wire")
    room.sessions.begin(B, parts(0, 1), "wire")
    room.sessions.end(A)
    room.sessions.advance(B, 1, parts(2, 3))


def test_a_session_is_its_principals_alone() -> None:
    room = Room()
    room.sessions.begin(A, parts(0), "wire")
    thief = A._replace(principal="User:thief")
    refused(ErrorCode.SHARE_SESSION_NOT_FOUND, room, thief, 1)
    with pytest.raises(KafkaError) as caught:
        room.sessions.begin(thief, parts(0), "other wire")
    assert caught.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND
    room.sessions.end(thief)
    room.sessions.disconnect("other wire")
    assert not room.ended and room.sessions.advance(A, 1)
