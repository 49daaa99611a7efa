"""`ottla check` finds damage of each kind, changes nothing, and what it says of a start is what a start then does."""

import gc
import io
import json
import os
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.replication.log.checkpoints import encode_offsets
from ottla.replication.log.storage import OsStorage
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.cli.cli import main
from ottla.server.cli.inspection import check
from ottla.server.cli.inspection.rehearsal import OverlayStorage, open_broker, rehearse
from ottla.server.config.broker_config import BrokerConfig, load_config
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.tests.effort import first

META = "#\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nbroker.id=3\nversion=0\n"
BATCHES_PER_SEGMENT, SEGMENTS = 30, 3
END_OFFSET = BATCHES_PER_SEGMENT * SEGMENTS
MIDDLE, LAST = f"{BATCHES_PER_SEGMENT:020d}", f"{2 * BATCHES_PER_SEGMENT:020d}"
FIRST = f"{0:020d}"
VALUE = bytes(2000)
BATCH_BYTES = len(encode_batch([Record(0, 0, b"key", VALUE)]))


def config_of(*folders: Path, node_id: int = 3) -> BrokerConfig:
    return load_config({"log.dirs": ",".join(map(str, folders)), "node.id": str(node_id)})


def really_start(config: BrokerConfig) -> list[Any]:
    try:
        return trio.run(open_broker, config, OsStorage())
    finally:
        gc.collect()  # nobody holds the directories any longer


def pictured(folder: Path) -> dict[str, bytes | None]:
    return {
        str(each.relative_to(folder)): None if each.is_dir() else each.read_bytes()
        for each in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory as a broker has left it that was killed: topics, indexes, a journal, ids."""
    folder = tmp_path_factory.mktemp("begun") / "data"
    for partition in ("orders-0", "orders-1"):
        (folder / partition).mkdir(parents=True)
        for number in range(SEGMENTS):
            first = number * BATCHES_PER_SEGMENT
            batches = [
                encode_batch([Record(0, 1000 + offset, b"key", VALUE)], base_offset=offset, leader_epoch=0)
                for offset in range(first, first + BATCHES_PER_SEGMENT)
            ]
            (folder / partition / f"{first:020d}.log").write_bytes(b"".join(batches))
        (folder / partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (folder / "meta.properties").write_text(META)
    assert len(really_start(config_of(folder))) == 2
    points = {("orders", index): 2 * BATCHES_PER_SEGMENT for index in range(2)}
    (folder / "recovery-point-offset-checkpoint").write_bytes(encode_offsets(points))
    return folder


@pytest.fixture
def data(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun, tmp_path / "data"))


def stop_in_order(data: Path) -> None:
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')


def checked(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["check", *map(str, arguments), "--json"])
    streams = capsys.readouterr()
    assert streams.err == ""
    return code, json.loads(streams.out)


def assert_foretold(told: dict[str, Any], config: BrokerConfig, folder: Path) -> None:
    """What was told of a start is what a start does, to the byte."""
    storage = OverlayStorage()
    rehearsal = rehearse(config, storage)
    assert [list(each) for each in rehearsal.logs] == [list(each.values()) for each in told["start"]["logs"]]
    expected = {
        os.path.relpath(path, folder): None if size is None else storage.read(path)
        for path, size in storage.walk(str(folder))
    }
    logs = really_start(config)
    assert [list(each) for each in logs] == [list(each.values()) for each in told["start"]["logs"]]
    found = pictured(folder)
    random = {"coordination.journal", ".lock"}  # new topics have ids of their own
    assert {name: data for name, data in found.items() if name not in random} == {
        name: data for name, data in expected.items() if name not in random
    }


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def log(data: Path, name: str = LAST, partition: str = "orders-0") -> Path:
    return data / partition / f"{name}.log"


def torn_end(data: Path) -> None:
    os.truncate(log(data), log(data).stat().st_size - 100)


def flipped_byte(data: Path) -> None:
    flip(log(data), 5 * BATCH_BYTES + 100)


def flipped_byte_that_was_synced(data: Path) -> None:
    flip(log(data, FIRST), 5 * BATCH_BYTES + 100)


def flipped_byte_after_an_orderly_stop(data: Path) -> None:
    stop_in_order(data)
    flipped_byte(data)


def missing_index(data: Path) -> None:
    stop_in_order(data)
    (data / "orders-0" / f"{FIRST}.index").unlink()


def index_of_another_log(data: Path) -> None:
    stop_in_order(data)
    file = data / "orders-0" / f"{FIRST}.index"
    entries = bytearray(file.read_bytes())
    assert len(entries) >= 16
    entries[7] ^= 1
    file.write_bytes(entries)


def zeros_behind_an_index(data: Path) -> None:
    stop_in_order(data)
    with (data / "orders-0" / f"{LAST}.timeindex").open("ab") as file:
        file.write(bytes(12 * 10))


def torn_epochs(data: Path) -> None:
    stop_in_order(data)
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")


def torn_recovery_points(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 6")


def torn_snapshot(data: Path) -> None:
    stop_in_order(data)
    (data / "orders-0" / f"{END_OFFSET:020d}.snapshot").write_bytes(b"\0\1torn")


def torn_metadata(data: Path) -> None:
    stop_in_order(data)
    (data / "orders-0" / "partition.metadata").write_text("version: 0")


def segment_in_between_lost_its_end(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_bytes(encode_offsets({("orders", 0): 0, ("orders", 1): 0}))
    os.truncate(log(data, MIDDLE), 10 * BATCH_BYTES)


def overlapping_segment(data: Path) -> None:
    stop_in_order(data)
    shutil.copy(log(data, FIRST), data / "orders-0" / f"{10:020d}.log")


DAMAGES: list[tuple[Callable[[Path], None], str, str, str]] = [
    (torn_end, f"orders-0/{LAST}.log", "impossible size", f"cuts the file at {29 * BATCH_BYTES} bytes"),
    (flipped_byte, f"orders-0/{LAST}.log", "checksum", f"cuts the file at {5 * BATCH_BYTES} bytes"),
    (flipped_byte_that_was_synced, f"orders-0/{FIRST}.log", "checksum", "leaves it as it is"),
    (flipped_byte_after_an_orderly_stop, f"orders-0/{LAST}.log", "checksum", "leaves it as it is"),
    (missing_index, f"orders-0/{FIRST}.index", "is missing", "makes it"),
    (index_of_another_log, f"orders-0/{FIRST}.index", "is not at position", "leaves it as it is"),
    (zeros_behind_an_index, f"orders-0/{LAST}.timeindex", "entries do not rise", "makes it anew"),
    (torn_epochs, "orders-0/leader-epoch-checkpoint", "2 entries expected, 1 found", "leaves it as it is"),
    (torn_recovery_points, "recovery-point-offset-checkpoint", "2 entries expected", "leaves it as it is"),
    (torn_snapshot, f"orders-0/{END_OFFSET:020d}.snapshot", "", "removes it"),
    (torn_metadata, "orders-0/partition.metadata", "uuid", "makes it anew"),
    (
        overlapping_segment,
        f"orders-0/{10:020d}.log",
        "but the segment before it ends at 29",
        "cuts the file at 0 bytes",
    ),
]


@pytest.mark.parametrize(
    ("do", "name", "reason", "fate"), first(4, DAMAGES), ids=[each[0].__name__ for each in DAMAGES]
)
def test_damage_is_told_and_what_a_start_does_about_it(
    data: Path, do: Callable[[Path], None], name: str, reason: str, fate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    do(data)
    before = pictured(data)
    code, told = checked(data, capsys=capsys)
    assert code == 1
    assert pictured(data) == before, "nothing is changed"
    damage = [each for each in told["findings"] if each["is_damage"] and each["path"] == str(data / name)]
    assert any(reason in each["reason"] for each in damage), told["findings"]
    assert {each["at_start"] for each in damage} == {fate}
    assert_foretold(told, config_of(data), data)


def test_people_read_what_a_start_would_do(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flipped_byte(data)
    assert main(["check", str(data)]) == 1
    lines = capsys.readouterr().out.splitlines()
    place = 5 * BATCH_BYTES
    assert lines[0].startswith(f"damaged: {log(data)}: checksum ")
    assert lines[0].endswith(f" at position {place}")
    assert lines[1] == f"  a start cuts the file at {place} bytes"
    cut = f"a start cuts {30 * BATCH_BYTES} bytes to {place} of {log(data)}; the log ends at offset {2 * BATCHES_PER_SEGMENT + 5}"
    assert cut in lines
    assert lines[-1].endswith(": 1 damaged")


def test_a_gap_between_segments_is_foretold(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment_in_between_lost_its_end(data)
    _, told = checked(data, capsys=capsys)
    (changed,) = (
        each for each in told["start"]["changes"] if each["path"] == str(log(data)) or each["source"] == str(log(data))
    )
    assert changed["kind"] in ("removed", "renamed")
    (orders,) = (each for each in told["start"]["logs"] if each["name"] == "orders-0")
    assert orders["log_end_offset"] == BATCHES_PER_SEGMENT + 10
    assert_foretold(told, config_of(data), data)


@pytest.mark.parametrize("in_order", [True, False])
def test_a_good_directory_is_good(data: Path, in_order: bool, capsys: pytest.CaptureFixture[str]) -> None:
    if in_order:
        stop_in_order(data)
    before = pictured(data)
    code, told = checked(data, capsys=capsys)
    assert (code, told["damage"], told["findings"], told["start"]["refusal"]) == (0, 0, [], None)
    assert (told["partitions"], told["segments"], told["batches"]) == (2, 2 * SEGMENTS, 2 * END_OFFSET)
    assert [each["log_end_offset"] for each in told["start"]["logs"]] == [END_OFFSET, END_OFFSET]
    assert pictured(data) == before
    assert_foretold(told, config_of(data), data)


def test_what_nobody_knows_is_a_note(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop_in_order(data)
    (data / "notes.txt").write_text("buy milk")
    (data / "orders-0" / "backup.tar").write_bytes(b"")
    code, told = checked(data, capsys=capsys)
    assert (code, told["damage"]) == (0, 0)
    assert {each["path"] for each in told["findings"]} == {
        str(data / "notes.txt"),
        str(data / "orders-0" / "backup.tar"),
    }
    assert_foretold(told, config_of(data), data)


def test_the_directories_of_other_workers_are_looked_at_too(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = data / "workers" / "1" / "orders-7"
    home.mkdir(parents=True)
    (home / "note.txt").write_text("what is this?")
    assert main(["check", str(data)]) == 1
    out = capsys.readouterr().out
    assert f"note: {home / 'note.txt'}: nobody knows what this is" in out
    assert "a start is refused: Worker 1 has partitions below" in out


def test_a_partition_that_is_lost_is_made_anew(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(data / "orders-1")
    _, told = checked(data, capsys=capsys)
    assert str(data / "orders-1") in {each["path"] for each in told["start"]["changes"] if each["kind"] == "created"}
    assert [each["log_end_offset"] for each in told["start"]["logs"]] == [END_OFFSET, 0]


def changed_meta(data: Path, name: str, value: str) -> None:
    file = data / "meta.properties"
    file.write_text(re.sub(rf"{name}=.*", f"{name}={value}", file.read_text()))


REFUSED: list[tuple[str, str, str]] = [
    ("cluster.id", "BBBBBBBBBBBBBBBBBBBBBB", "belongs to cluster BBBBBBBBBBBBBBBBBBBBBB"),
    ("directory.id", "BBBBBBBBBBBBBBBBBBBBBQ", "BBBBBBBBBBBBBBBBBBBBBQ"),
    ("directory.id", "torn", "cannot be read: 'torn' is no uuid"),
    ("broker.id", "4", "Configured node id 3 does not match the stored one 4"),
]


@pytest.mark.parametrize(("name", "value", "words"), REFUSED)
def test_a_start_that_is_refused_is_told_with_its_reason(
    data: Path, name: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changed_meta(data, name, value)
    properties = data.parent / "server.properties"
    properties.write_text(f"node.id=3\nlog.dirs={data}\nssl.keystore.location=/not/looked/at\n")
    before = pictured(data)
    code, told = checked("--config", properties, capsys=capsys)
    assert code == 1
    assert words in told["start"]["refusal"]
    assert pictured(data) == before
    assert main(["check", "--config", str(properties)]) == 1
    assert f"a start is refused: {told['start']['refusal']}\n" in capsys.readouterr().out
    with pytest.raises((LogDirectoryProblem, ExceptionGroup)) as refused:
        really_start(config_of(data))
    assert words in "".join(traceback.format_exception(refused.value))


def test_a_directory_that_is_missing_is_why_a_start_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "second").mkdir()
    really_start(config_of(data, tmp_path / "second"))
    _, told = checked(data, capsys=capsys)
    assert str(tmp_path / "second") in told["start"]["refusal"]
    assert checked(data, tmp_path / "second", capsys=capsys)[1]["start"]["refusal"] is None


def test_a_torn_journal_is_told_as_a_start_finds_it(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = data / "coordination.journal"
    os.truncate(journal, journal.stat().st_size - 3)
    before = pictured(data)
    _, told = checked(data, capsys=capsys)
    assert pictured(data) == before
    assert_foretold(told, config_of(data), data)


@pytest.fixture
def running(data: Path) -> Iterator[None]:
    """Another process has the lock, as a broker has it."""
    program = (
        "import sys; from ottla.replication.log.storage import OsStorage;"
        "lock = OsStorage().lock(sys.argv[1]); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(data / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.usefixtures("running")
def test_a_directory_in_use_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(data)]) == 1
    assert "is in use by a broker" in capsys.readouterr().err


def test_nothing_of_a_directory_is_opened_to_be_written(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even its lock, whatever that leads to; so whoever may only read can look as well."""
    (data / ".lock").unlink(missing_ok=True)
    (data / ".lock").symlink_to(data.parent / "elsewhere")
    (data.parent / "elsewhere").touch()
    torn_end(data)
    before, opened, really_open = pictured(data), [], os.open

    def noted(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if str(data) in str(path):
            opened.append(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        return really_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", noted)
    assert main(["check", str(data)]) == 1
    assert set(opened) == {0}
    assert pictured(data) == before


def test_pipes_and_links_that_lead_nowhere_hold_nobody_up(data: Path) -> None:
    """To open a pipe waits for somebody who writes to it."""
    pipes = [data / ".lock", data / "replication-offset-checkpoint", log(data), log(data).with_suffix(".timeindex")]
    pipes += [data / "orders-0" / "partition.metadata"]
    for path in pipes:
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    link = log(data, FIRST, "orders-1")
    link.unlink()
    link.symlink_to("nowhere")
    # A process, so that this test ends even if the command does not.
    command = [sys.executable, "-m", "ottla", "check", str(data)]
    done = subprocess.run(command, check=False, text=True, capture_output=True, timeout=240)
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    for path in pipes[1:]:
        assert f"damaged: {path}: is no file" in done.stdout
    assert f"damaged: {link}: No such file or directory" in done.stdout


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_and_gone_at_the_end(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_in_order(data)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(check, "_PROGRESS_S", 0)
    assert main(["check", str(data)]) == 0
    shown = terminal.getvalue().split("\r")
    total = 2 * END_OFFSET * BATCH_BYTES
    assert f"  0 % of {total:,} bytes" in shown
    assert f"100 % of {total:,} bytes" in shown
    assert shown[-1] == "\033[K"


def test_the_folder_of_a_partition_is_none_of_a_broker(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(data / "orders-0")]) == 2
    assert f"give the data directory that it is in, {data}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["/no/such/folder"], ["--config", "/no/such/file"]])
def test_wrong_use(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("log.retentoin.ms=1", "Unknown setting log.retentoin.ms"),
        ("log.retention.ms=soon", "Invalid value soon for setting log.retention.ms"),
        ("num.partitions=0", "Invalid value 0 for setting num.partitions"),
        ("log.segment.bytes=10MB", "Invalid value 10MB for setting log.segment.bytes"),
        ("group.consumer.max.heartbeat.interval.ms=9000\ngroup.consumer.min.heartbeat.interval.ms=9001", "heartbeat"),
        ("inter.broker.listener.name=INSIDE", "inter.broker.listener.name"),
    ],
)
def test_settings_with_which_no_broker_starts_are_refused(
    data: Path, line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = data.parent / "server.properties"
    properties.write_text(f"node.id=3\nlog.dirs={data}\n{line}\n")
    before = pictured(data)
    assert main(["check", "--config", str(properties)]) == 2
    told = capsys.readouterr()
    assert words in told.err and str(properties) in told.err and told.err.count("\n") == 1 and not told.out
    assert pictured(data) == before
