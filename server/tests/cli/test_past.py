"""`ottla why --data`: what the files of a data directory tell of groups, transactions and offsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.groupcoord.classic.members import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.groupcoord.transactions.metadata import (
    ONGOING,
    PREPARE_ABORT,
    Partitions,
    TransactionMetadata,
    TransactionState,
)
from ottla.groupcoord.transactions.records import TransactionRecord, encode_record
from ottla.server.cli.cli import main
from ottla.server.cli.inspection.fate import fate_of
from ottla.server.cli.inspection.past import DirectoryView, _Reader, causes_in
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

NOW_MS = 1_700_000_000_000


def write(folder: Path, partition: str, *batches: bytes, base_offset: int = 0) -> None:
    (folder / partition).mkdir(exist_ok=True)
    (folder / partition / f"{base_offset:020}.log").write_bytes(b"".join(batches))


def transactional(base_offset: int, producer_id: int = 7) -> bytes:
    return encode_batch(
        [Record(0, NOW_MS, None, b"v")],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_offset,
        is_transactional=True,
    )


def marker(base_offset: int, kind: ControlType, producer_id: int = 7) -> bytes:
    return encode_end_txn_marker(
        EndTxnMarker(kind, 0), timestamp_ms=NOW_MS, producer_id=producer_id, producer_epoch=0, base_offset=base_offset
    )


def generation(group: str, number: int, *members: str) -> Record:
    written = [
        MemberMetadata(
            member_id=each,
            client_id="c",
            client_host="/h",
            rebalance_timeout=1,
            session_timeout=1,
            subscription=b"",
            assignment=b"",
        )
        for each in members
    ]
    value = GroupMetadataValue(
        protocol_type="consumer", generation=number, protocol="range", leader=None, members=written
    )
    key = b"\0\2" + GroupMetadataKey(group=group).encode(0)
    return Record(0, NOW_MS + number, key, b"\0\3" + value.encode(3))


def aborting(name: str, state: TransactionState) -> Record:
    metadata = TransactionMetadata(
        producer_id=7,
        producer_epoch=1,
        timeout_ms=60_000,
        state=state,
        partitions=Partitions({"t": frozenset({0, 1})}),
        start_timestamp_ms=NOW_MS,
        last_update_timestamp_ms=NOW_MS + 5,
    )
    key, value = encode_record(TransactionRecord(name, metadata))
    return Record(0, NOW_MS, key, value)


def test_members_of_generations_and_aborted_transactions(tmp_path: Path) -> None:
    tombstone = Record(0, NOW_MS, b"\0\2" + GroupMetadataKey(group="g").encode(0), None)
    records = [generation("g", 1, "a"), generation("g", 2, "a", "b"), generation("g", 3, "b"), tombstone]
    write(tmp_path, "__consumer_offsets-3", encode_batch([*records, generation("g", 1, "x"), generation("h", 9)]))
    write(
        tmp_path,
        "__transaction_state-1",
        encode_batch([aborting("tx", ONGOING), aborting("tx", PREPARE_ABORT)]),
    )
    group = "classic group 'g' had"
    assert sorted(each.cause for each in causes_in(tmp_path)) == [
        f"{group} 1 member in generation 1: 'a' came",
        f"{group} 1 member in generation 1: 'x' came",
        f"{group} 1 member in generation 3: 'a' went",
        f"{group} 2 members in generation 2: 'b' came",
        "classic group 'h' had no members in generation 9, the same as before",
        "transaction of 'tx' was aborted: producer id 7, epoch 1, 2 partitions, timeout 60000 ms",
    ]


def test_a_damaged_end_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "__consumer_offsets-0", encode_batch([generation("g", 1, "a")]), b"\0" * 40 + b"x" * 40)
    (tmp_path / "__consumer_offsets-1").mkdir()
    assert [each.cause for each in causes_in(tmp_path)] == ["classic group 'g' had 1 member in generation 1: 'a' came"]


def test_offsets_in_files(tmp_path: Path) -> None:
    plain = encode_batch([Record(0, NOW_MS, b"k", b"v")], base_offset=5)
    first = [plain, transactional(6), marker(7, ControlType.ABORT)]
    write(tmp_path, "t-1", *first, base_offset=5)
    write(tmp_path, "t-1", transactional(10), marker(11, ControlType.COMMIT), transactional(12, 8), base_offset=10)

    def state(offset: int, partition: int = 1) -> str:
        return fate_of(DirectoryView(tmp_path, "t", partition), offset).state

    states = {offset: state(offset) for offset in range(4, 14)}
    assert states == {
        4: "removed",
        5: "there",
        6: "aborted",
        7: "marker",
        8: "compacted",
        9: "compacted",
        10: "there",
        11: "marker",
        12: "open",
        13: "unwritten",
    }
    assert state(0, partition=2) == "no partition"
    assert fate_of(DirectoryView(tmp_path, "u", 0), 0).state == "no topic"
    assert str(fate_of(DirectoryView(tmp_path, "t", 1), 4)) == (
        "Offset 4 of t-1 is not there any more: the log begins at offset 5. Retention removed it, or somebody deleted"
        " records before it."
    )


def test_the_transactional_id_comes_from_the_transaction_topic(tmp_path: Path) -> None:
    write(tmp_path, "t-0", transactional(0))
    write(tmp_path, "__transaction_state-1", encode_batch([aborting("tx", ONGOING)]))
    assert str(fate_of(DirectoryView(tmp_path, "t", 0), 0)).endswith("Its transactional id is 'tx'.")


def test_the_log_start_offset_comes_from_the_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, "t-0", transactional(0), transactional(1))
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    assert fate_of(DirectoryView(tmp_path, "t", 0), 0).state == "removed"


@pytest.fixture
def why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["why", "--data", str(tmp_path), *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_the_command(tmp_path: Path, why: Callable[..., tuple[int, str, str]]) -> None:
    write(tmp_path, "__consumer_offsets-3", encode_batch([generation("g", 1, "a"), generation("h", 1, "a")]))
    write(tmp_path, "t-0", transactional(0))
    code, out, err = why("--group", "g")
    assert (code, err) == (0, "") and out.splitlines()[1].endswith(
        "Classic group 'g' had 1 member in generation 1: 'a' came."
    )
    assert why("--kind", "transaction-aborted")[1] == "nothing out of the ordinary is known\n"
    assert why("t", "0", "9")[1] == "Offset 9 of t-0 is not written yet: the next record gets offset 1.\n"


def test_a_directory_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["t", "0", "0"]):
        assert main(["why", "--data", "/nowhere/at/all", *words]) == 2
        assert capsys.readouterr().err == "ottla: --data /nowhere/at/all: No such file or directory\n"


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=80))
def test_foreign_records_are_passed_over(key: bytes | None, value: bytes | None) -> None:
    reader = _Reader()
    reader.take_group(Record(0, NOW_MS, key, value))
    reader.take_group(Record(0, NOW_MS, b"\0\2" + (key or b""), value))
