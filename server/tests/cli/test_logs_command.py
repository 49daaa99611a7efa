"""`ottla logs` tells damage by position and reason, shows nothing that a terminal would obey, and never reads too much.

That it shows what Kafka's own tool shows is in `compat_tests/files/test_written_files.py`.
"""

import json
import os
import tracemalloc
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.groupcoord.offsets.table import OffsetCommitKey, OffsetCommitValue
from ottla.server.cli.cli import main
from ottla.server.cli.inspection.dump import BATCH_BYTES_MAX, NoLogFile, ReadOnlyFile, batches_of, rows_of
from ottla.server.cli.inspection.rows import (
    as_json_line,
    as_text,
    offsets_decoder,
    share_state_decoder,
    transactions_decoder,
)
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.tests.effort import examples

LOG = f"{0:020d}.log"


def batch(offset: int, *values: bytes) -> bytes:
    return encode_batch([Record(0, 1000 + offset, b"k", value) for value in values], base_offset=offset)


def written(folder: Path, name: str, data: bytes) -> Path:
    file = folder / name
    file.write_bytes(data)
    return file


def run(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["logs", *map(str, arguments)])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def test_a_flipped_byte_is_told_with_its_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = batch(0, b"one"), bytearray(batch(1, b"two")), batch(2, b"three")
    second[-2] ^= 1
    file = written(tmp_path, LOG, first + second + third)
    code, out, err = run(file, capsys=capsys)
    assert code == 1
    assert [line.rpartition(" ")[2] for line in out.splitlines()[1:]] == ["true", "false", "true"]
    assert err.count("\n") == 1
    assert f"{file}: checksum" in err
    assert f"at position {len(first)}" in err


@pytest.mark.parametrize("lost", [1, 30, 60])
def test_a_torn_end_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: int) -> None:
    first, second = batch(0, b"one"), batch(1, b"two")
    file = written(tmp_path, LOG, first + second[:-lost])
    code, out, err = run(file, "--records", capsys=capsys)
    assert (code, err.count("\n")) == (1, 1)
    assert f"at position {len(first)}" in err
    assert len(out.splitlines()) == 3


def test_damaged_indexes_and_small_files_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, data, words in (
        (f"{5:020d}.index", pack(">iiii", 1, 100, 0, 200), "entries do not rise at position 8"),
        (
            f"{5:020d}.index",
            pack(">ii", 1, 100) + b"\0",
            "1 bytes are left over behind the last whole entry, at position 8",
        ),
        (f"{5:020d}.timeindex", pack(">qiqi", 7, 1, 6, 2), "entries do not rise at position 12"),
        (f"{5:020d}.txnindex", pack(">hqqqq", 0, 1, 9, 8, 0), "no aborted transaction can be so at position 0"),
        (f"{5:020d}.snapshot", b"torn", "at position 0"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "2 entries expected, 1 found at position 0"),
        ("partition.metadata", b"nothing", "at position 0"),
        ("notes.txt", b"", "this is no file of a log"),
    ):
        code, _, err = run(written(tmp_path, name, data), capsys=capsys)
        assert (code, err.count("\n")) == (1, 1), name
        assert words in err


def test_good_indexes_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, f"{5:020d}.index", pack(">iiii", 1, 100, 3, 200))
    written(tmp_path, f"{5:020d}.timeindex", pack(">qiqi", 7, 1, 9, 2))
    written(tmp_path, f"{5:020d}.txnindex", pack(">hqqqq", 0, 1, 6, 8, 5))
    written(tmp_path, "leader-epoch-checkpoint", b"0\n1\n3 5\n")
    code, out, err = run(tmp_path, capsys=capsys)
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if not line.startswith("Dumping ")] == [
        "offset: 6 position: 100",
        "offset: 8 position: 200",
        "timestamp: 7 offset: 6",
        "timestamp: 9 offset: 7",
        "version: 0 producerId: 1 firstOffset: 6 lastOffset: 8 lastStableOffset: 5",
        "leaderEpoch: 3 startOffset: 5",
    ]


def test_what_a_terminal_would_obey_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = [
        b"\x1b]0;title\x07",
        b"two\nlines\r\t",
        "\u202eright to left \u009b".encode(),
        b"\xff\xfe",
        "größe ✓".encode(),
    ]
    file = written(tmp_path, LOG, batch(0, *values))
    code, out, _ = run(file, "--records", capsys=capsys)
    assert code == 0
    shown = [line.rpartition("payload: ")[2] for line in out.splitlines()[2:]]
    assert shown == [
        "\\x1b]0;title\\x07",
        "two\\nlines\\r\\t",
        "\\u202eright to left \\x9b",
        "\\xff\\xfe",
        "größe ✓",
    ]
    code, out, _ = run(file, "--records", "--json", capsys=capsys)
    assert out.isascii()
    assert json.loads(out.splitlines()[1])["payload"] == "\x1b]0;title\x07"


def test_names_of_files_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "\x1b[31m"
    folder.mkdir()
    _, out, err = run(written(folder, LOG, b"torn"), capsys=capsys)
    assert "\x1b" not in out + err


def test_decoded_records_are_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = b"\0\1" + OffsetCommitKey(group="g", topic="t", partition=3).encode(0)
    value = b"\0\4" + OffsetCommitValue(offset=7, metadata="m", commit_timestamp=1).encode(4)
    pairs = [(key, value), (key, None), (key, b"\0\x7f"), (b"\x7f\xff", b""), (b"\0\1\0", b""), (None, b"")]
    file = written(tmp_path, LOG, encode_batch([Record(i, 1, *pair) for i, pair in enumerate(pairs)]))
    code, out, _ = run(file, "--offsets", "--json", capsys=capsys)
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()[1:]]
    assert rows[0]["key"] == {"type": "1", "data": {"group": "g", "topic": "t", "partition": 3}}
    assert rows[0]["payload"]["data"]["offset"] == 7
    assert rows[1]["payload"] == "<DELETE>"
    assert rows[2]["payload"] == "value of an unknown version: 127"
    assert rows[3]["key"] == "record of an unknown type: 32767"
    assert "cannot be read" in rows[4]["key"]
    assert rows[5]["key"] == "record of an unknown type: None"


def test_nothing_to_show_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "none", capsys=capsys)[0] == 1
    code, _, err = run(tmp_path, capsys=capsys)
    assert (code, err.count("\n")) == (2, 1)


def test_a_file_that_is_closed_twice_closes_no_other_that_has_its_number(tmp_path: Path) -> None:
    written(tmp_path, LOG, batch(0, b"one"))
    with (tmp_path / LOG).open("rb") as other:
        read = ReadOnlyFile(tmp_path / LOG)
        number = read._fd
        read.__exit__()
        os.dup2(other.fileno(), number)
        try:
            for use in (read.__exit__, lambda: read.size, lambda: read.read_at(0, 1)):
                with pytest.raises(OSError, match="Bad file descriptor"):
                    use()
            assert os.fstat(number).st_size > 0
        finally:
            os.close(number)


def test_a_large_segment_takes_little_memory(tmp_path: Path) -> None:
    with (tmp_path / LOG).open("wb") as file:
        for offset in range(64):
            file.write(batch(offset, bytes(1024 * 1024)))
    tracemalloc.start()
    with ReadOnlyFile(tmp_path / LOG) as read:
        assert [found.problem for found in batches_of(read)] == [None] * 64
    assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    tracemalloc.stop()


def test_a_length_that_lies_takes_little_memory(tmp_path: Path) -> None:
    with (tmp_path / LOG).open("wb") as file:
        length = BATCH_BYTES_MAX + 1
        file.write(b"\0" * 8 + length.to_bytes(4, "big") + b"\0\0\0\0\1" + b"\0" * 44)
        file.truncate(12 + length)  # all of it a hole
    tracemalloc.start()
    complaints: list[str] = []
    rows = rows_of(tmp_path / LOG, lambda _, reason: complaints.append(reason), shows_records=True, decoder=None)
    assert len(list(rows)) == 1
    assert len(complaints) == 2
    assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    tracemalloc.stop()


GOOD = batch(0, b"one", b"two") + batch(2, b"three")
NAMES = [f"{0:020d}{kind}" for kind in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")]


@settings(max_examples=examples(100))
@given(
    st.sampled_from([*NAMES, "leader-epoch-checkpoint", "partition.metadata", "other"]),
    st.binary(max_size=300)
    | st.tuples(st.integers(0, len(GOOD)), st.binary(max_size=8)).map(
        lambda cut: GOOD[: cut[0]] + cut[1] + GOOD[cut[0] + len(cut[1]) :]
    ),
    st.sampled_from([None, offsets_decoder, transactions_decoder, share_state_decoder]),
)
def test_any_bytes_are_shown_or_complained_of(tmp_path_factory, name, data, decoder):
    file = written(tmp_path_factory.mktemp("any", numbered=True), name, data)
    complaints: list[str] = []
    try:
        rows = list(rows_of(file, lambda _, reason: complaints.append(reason), shows_records=True, decoder=decoder))
    except NoLogFile:
        assert name == "other"
        return
    assert len(rows) + len(complaints) <= len(data) + 2
    for _, row in rows:
        assert as_text(row).isprintable()
        assert isinstance(json.loads(as_json_line(row)), dict)


@given(st.binary(max_size=64), st.none() | st.binary(max_size=200))
def test_any_internal_record_has_a_text(key, value):
    for decoder in (offsets_decoder, transactions_decoder, share_state_decoder):
        for key_type in (b"", b"\0\0", b"\0\1", b"\0\2", b"\0\5"):
            shown, _ = decoder(key_type + key, value)
            assert str(shown)
