"""What Ottla writes, as Kafka's DumpLogSegments of both releases reads it: without a complaint, and what was written."""

import functools
import json
import re
from pathlib import Path
from struct import pack

import pytest
from compat_tests.files.conftest import DUMP
from compat_tests.files.filling import CODECS, GROUPS, TOPICS

from ottla.groupcoord.service import GROUP_TYPES
from ottla.groupcoord.share.coordinator.records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ottla.groupcoord.transactions.records import TransactionLogKey, TransactionLogValue
from ottla.server.cli.cli import main
from ottla.wire.compression import Compression
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.legacy_records import encode_message_set
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record, TimestampType

BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* position: (\d+) \w+: (\d+) .* isvalid: true$", re.MULTILINE
)


@pytest.fixture(params=["kafka_4", "kafka_3"], name="dump")
def _dump(dump, request):
    return functools.partial(dump, request.param)


def files_of(written, pattern: str) -> list[Path]:
    return sorted(path for path in written.data.glob(pattern) if "__" not in path.parent.name)


def batches_in(printed: str) -> list[tuple[int, ...]]:
    """(first offset, last offset, records, position, largest timestamp) of each."""
    return [tuple(map(int, found)) for found in BATCH.findall(printed)]


def test_every_batch_of_every_log(written, dump):
    for topic, count in TOPICS.items():
        for partition in range(count):
            files = files_of(written, f"{topic}-{partition}/*.log")
            found = batches_in(dump(files, "--deep-iteration", gaps=topic == "compacted"))
            fetched = [batch for read in written.told[f"fetch of {topic}-{partition}"] for batch in read["records"]]
            if topic == "headless":  # its head is deleted, but still in the file
                found = [batch for batch in found if batch[1] >= 70]
            assert [(batch[0], batch[1] + 1, batch[2]) for batch in found] == [
                (batch["base_offset"], batch["next_offset"], batch["records_count"]) for batch in fetched
            ]
    assert len(files_of(written, "segments-0/*.log")) == 3


def test_every_record_of_every_codec(written, dump):
    printed = dump(files_of(written, "codecs-0/*.log"), "--deep-iteration", "--print-data-log", look=False)
    values = re.findall(r"^\| offset: (\d+) .* key: key payload: (.*)$", printed, re.MULTILINE)
    expected = [f"{codec} {i} " * 50 for codec in CODECS for i in range(30)]
    assert values == [(str(offset), value) for offset, value in enumerate(expected)]
    assert set(re.findall(r" compresscodec: (\w+) ", printed)) == set(CODECS)
    assert sum(count for _, _, count, *_ in batches_in(printed)) == len(expected)
    assert any(count > 1 for _, _, count, *_ in batches_in(printed)), (
        "batches of several records are what this is about"
    )


def test_every_index_entry_is_where_its_batch_is(written, dump):
    for directory in sorted({path.parent for path in files_of(written, "*/*.index")}):
        batches = batches_in(dump(sorted(directory.glob("*.log"))))
        indexes = [*directory.glob("*.index"), *directory.glob("*.timeindex")]
        checked = dump(indexes, "--index-sanity-check")
        assert len(re.findall(r" passed sanity check\.$| is empty\.$", checked, re.MULTILINE)) == len(indexes)
        dump(indexes, "--verify-index-only")
        printed = dump(indexes)
        # An empty index is shown as one entry at the base offset.
        positions = {(batch[1], batch[3]) for batch in batches} | {(int(path.stem), 0) for path in indexes}
        assert {
            tuple(map(int, found)) for found in re.findall(r"^offset: (\d+) position: (\d+)$", printed, re.MULTILINE)
        } <= positions
        stamps = {(batch[4], batch[1]) for batch in batches}
        found = {
            tuple(map(int, found)) for found in re.findall(r"^timestamp: (\d+) offset: (\d+)$", printed, re.MULTILINE)
        }
        assert {each for each in found if each[0]} <= stamps
    assert len(re.findall(r"^offset:", dump(files_of(written, "segments-0/*.index")), re.MULTILINE)) > 200
    assert len(re.findall(r"^timestamp:", dump(files_of(written, "segments-0/*.timeindex")), re.MULTILINE)) > 200


def test_the_newest_snapshot_has_the_producers(written, dump):
    for topic in ("sequences", "compacted"):
        newest = files_of(written, f"{topic}-0/*.snapshot")[-1]
        found = re.findall(r"producerId: (\d+) producerEpoch: (\d+) .* lastSequence: (\d+) ", dump([newest]))
        (producer,) = written.told[f"producers of {topic}-0"]["active_producers"]
        shown = [producer["producer_id"], producer["producer_epoch"], producer["last_sequence"]]
        assert found == [tuple(map(str, shown))]


def test_there_is_no_transaction_index_and_an_empty_one_would_do(written, dump, tmp_path):
    assert files_of(written, "*/*.txnindex") == []
    empty = tmp_path / "00000000000000000000.txnindex"
    empty.touch()
    assert dump([empty]) == f"Dumping {empty}\n"


def test_committed_offsets_and_groups(written, dump):
    files = sorted(path for path in written.data.glob("__consumer_offsets-*/*.log") if path.stat().st_size)
    printed = dump(files, "--offsets-decoder")
    keys = re.findall(r" key: (\{.*?\}\}) payload: (.*)$", printed, re.MULTILINE)
    committed: dict[tuple[str, str, int], tuple[int, str]] = {}
    for key_text, payload_text in keys:
        key, payload = json.loads(key_text), json.loads(payload_text)
        if key["type"] == "1":
            place = key["data"]
            committed[place["group"], place["topic"], place["partition"]] = (
                payload["data"]["offset"],
                payload["data"]["metadata"],
            )
    told = {
        (group, topic["name"], partition["partition_index"]): (partition["committed_offset"], partition["metadata"])
        for group in GROUPS
        for topic in written.told[f"offsets of {group}"]["topics"]
        for partition in topic["partitions"]
    }
    assert committed == told
    assert len(told) == 4


def test_the_small_files_beside_the_logs(written):
    directory = written.data / "segments-1"
    assert re.fullmatch(r"version: 0\ntopic_id: [\w-]{22}\n?", (directory / "partition.metadata").read_text())
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert "\nsegments 1 500\n" in (written.data / checkpoint).read_text()
    assert "\nheadless 0 70\n" in (written.data / "log-start-offset-checkpoint").read_text()
    properties = (written.data / "meta.properties").read_text()
    assert re.fullmatch(r"#.*\ncluster\.id=[\w-]{22}\ndirectory\.id=[\w-]{22}\nbroker\.id=0\nversion=0\n", properties)
    assert (written.data / ".kafka_cleanshutdown").exists()


def lines_of_ottla(files: list[Path], *options: str, capsys) -> list[str]:
    capsys.readouterr()
    assert main(["logs", *map(str, files), *options]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out.splitlines()


def lines_of_kafka(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if not line.startswith("Log starting offset: ")]


def with_contents(files: list[Path]) -> list[Path]:
    return [file for file in files if file.stat().st_size]  # of an empty index Kafka shows an entry that is not there


@pytest.mark.parametrize("pattern", ["*/*.log", "*/*.index", "*/*.timeindex", "*/*.snapshot"])
def test_ottla_logs_shows_what_kafka_shows(written, java_tools, capsys, pattern):
    files = with_contents(files_of(written, pattern))
    assert files
    said = java_tools("kafka_4")(DUMP["kafka_4"], "--files", ",".join(map(str, files)))
    assert lines_of_ottla(files, capsys=capsys) == lines_of_kafka(said.fine())


def test_ottla_logs_shows_records_as_kafka_does(written, java_tools, capsys):
    files = files_of(written, "codecs-0/*.log") + files_of(written, "sequences-0/*.log")
    said = java_tools("kafka_4")(DUMP["kafka_4"], "--files", ",".join(map(str, files)), "--print-data-log")
    assert lines_of_ottla(files, "--records", capsys=capsys) == lines_of_kafka(said.fine())


def test_ottla_logs_decodes_internal_topics_as_kafka_does(written, java_tools, capsys, tmp_path):
    for topic, kafka_option, option in (
        ("__consumer_offsets", "--offsets-decoder", "--offsets"),
        ("__transaction_state", "--transaction-log-decoder", "--transactions"),
        ("__share_group_state", "--share-group-state-decoder", "--share-state"),
    ):
        folder = tmp_path / f"{topic}-0"
        folder.mkdir()
        files = [folder / f"{0:020d}.log", *with_contents(sorted(written.data.glob(f"{topic}-*/*.log")))]
        # Every type and version of records that this broker writes, beside what was written by a broker.
        files[0].write_bytes(encode_batch([Record(i, 1, *pair) for i, pair in enumerate(samples(topic))]))
        said = java_tools("kafka_4")(DUMP["kafka_4"], "--files", ",".join(map(str, files)), kafka_option)
        assert lines_of_ottla(files, option, capsys=capsys) == lines_of_kafka(said.fine())


def samples(topic: str) -> list[tuple[bytes, bytes | None]]:
    """Keys and values of each type of an internal topic, with a tombstone each."""
    if topic == "__consumer_offsets":
        formats = [
            (each.key_types[0], each.key, each.value, each.written) for kind in GROUP_TYPES for each in kind.formats
        ]
    elif topic == "__transaction_state":
        formats = [(0, TransactionLogKey, TransactionLogValue, (0, 1))]
    else:
        formats = [(0, ShareSnapshotKey, ShareSnapshotValue, (0,)), (1, ShareUpdateKey, ShareUpdateValue, (0,))]
    found: list[tuple[bytes, bytes | None]] = []
    for key_type, key_class, value_class, versions in formats:
        key = key_type.to_bytes(2, "big") + key_class.zero().encode(0)
        for version in versions:
            found.append((key, version.to_bytes(2, "big") + value_class.zero().encode(version)))
        found.append((key, None))
    return found


def test_ottla_logs_shows_aborted_transactions_as_kafka_does(java_tools, capsys, tmp_path):
    file = tmp_path / f"{0:020d}.txnindex"
    file.write_bytes(pack(">hqqqq", 0, 7, 3, 9, 2) + pack(">hqqqq", 0, 8, 4, 12, 5))
    said = java_tools("kafka_4")(DUMP["kafka_4"], "--files", str(file)).fine()
    assert len(said.splitlines()) == 3
    assert lines_of_ottla([file], capsys=capsys) == lines_of_kafka(said)


def test_ottla_logs_shows_records_of_all_kinds_as_kafka_does(java_tools, capsys, tmp_path):
    file = tmp_path / f"{0:020d}.log"
    marker = EndTxnMarker(ControlType.ABORT, 5)
    producer = {"producer_id": 8, "producer_epoch": 2}
    batches = [
        encode_batch([Record(0, 1, None, b"value"), Record(1, 2, b"key", None), Record(2, 3, None, None)]),
        encode_batch(
            [Record(3, 1, b"", b"", ((b"h", b"1"), (b"none", None)))],
            base_offset=3,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            max_timestamp=7,
        ),
        encode_batch(
            [Record(4 + i, i, b"k", b"v" * 100) for i in range(9)],
            base_offset=4,
            compression=Compression.ZSTD,
            base_sequence=2**31 - 3,
            is_transactional=True,
            **producer,
        ),
        encode_end_txn_marker(marker, timestamp_ms=9, base_offset=13, **producer),
        encode_batch([Record(14, 5, b"k", None)], base_offset=14, delete_horizon_ms=1_000),
        *(
            encode_message_set([Record(15 + 4 * magic + i, 5, b"k", b"v") for i in range(2)], magic, compression=codec)
            for magic, codec in ((0, Compression.NONE), (1, Compression.NONE), (1, Compression.GZIP))
        ),
    ]
    file.write_bytes(b"".join(batches))
    said = java_tools("kafka_4")(DUMP["kafka_4"], "--files", str(file), "--print-data-log").fine()
    # Of a message within a message Kafka shows the checksum, too.
    shown = [re.sub(r" isValid: true crc: \d+ ", " ", line) for line in lines_of_kafka(said)]
    assert lines_of_ottla([file], "--records", capsys=capsys) == shown


def test_ottla_check_finds_nothing_wrong(written, capsys):
    assert main(["check", str(written.data)]) == 0
    assert "nothing damaged" in capsys.readouterr().out
