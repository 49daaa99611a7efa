"""Names in a log directory."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ottla.replication.log import names
from ottla.replication.log.names import PartitionDirectory, SegmentFile
from ottla.wire.errors import ErrorCode, KafkaError

HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("topic-0", PartitionDirectory("topic", 0, "")),
        ("a-b.c_d-12", PartitionDirectory("a-b.c_d", 12, "")),
        ("topic-0-1", PartitionDirectory("topic-0", 1, "")),
        (f"topic-0.{HEX}-delete", PartitionDirectory("topic", 0, "-delete")),
        (f"a.b-3.{HEX}-stray", PartitionDirectory("a.b", 3, "-stray")),
        (f"topic-0.{HEX}-future", PartitionDirectory("topic", 0, "-future")),
        ("topic", None),
        ("topic-", None),
        ("-1", None),
        ("topic-99999999999", None),
        ("topic-4294967296", None),
        ("topic--delete", None),
        ("lost+found", None),
    ],
)
def test_partition_directories(name: str, parsed: PartitionDirectory | None) -> None:
    assert names.parse_partition_directory(name) == parsed


def test_a_marked_directory_keeps_within_what_a_file_system_takes() -> None:
    name = names.marked_directory_name("t" * 249, 7, HEX, names.DELETE_MARK)
    assert len(name) == 255 and name.endswith(f"-7.{HEX}-delete")
    assert names.parse_partition_directory(name) == PartitionDirectory("t" * 213, 7, "-delete")


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000042.log", SegmentFile(42, ".log", "")),
        ("00000000000000000042.timeindex.swap", SegmentFile(42, ".timeindex", ".swap")),
        ("00000000000000000000.snapshot.deleted", SegmentFile(0, ".snapshot", ".deleted")),
        ("42.log", None),
        ("00000000000000000042.checkpoint", None),
        ("leader-epoch-checkpoint", None),
    ],
)
def test_segment_files(name: str, parsed: SegmentFile | None) -> None:
    assert names.parse_segment_file(name) == parsed
    if parsed is not None:
        assert names.segment_path("/d", parsed.offset, parsed.kind, parsed.suffix) == f"/d/{name}"


NO_TOPICS = ("", ".", "..", "../escaped", "a/b", "/etc", "a\0b", "a b", "a\nb", "grüße", "t" * 250)


@pytest.mark.parametrize("topic", NO_TOPICS)
def test_a_name_that_is_no_topics_makes_no_directory(topic: str) -> None:
    assert not names.is_partition_name(topic, 0)
    for refused in (
        lambda: names.partition_directory_name(topic, 0),
        lambda: names.marked_directory_name(topic, 0, HEX, names.DELETE_MARK),
        lambda: names.partition_path("/d", f"{topic}-0"),
    ):
        with pytest.raises(KafkaError) as failure:
            refused()
        assert failure.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("partition", [-1, -(2**31), 2**31])
def test_a_number_that_is_no_partitions_makes_no_directory(partition: int) -> None:
    with pytest.raises(KafkaError):
        names.partition_directory_name("topic", partition)


@pytest.mark.parametrize("length", [1, 203, 204, 205, 216, 244, 245, 246, 249])
@pytest.mark.parametrize("digits", range(1, 11))
def test_a_partition_that_can_be_has_names_that_file_systems_take_whatever_becomes_of_it(
    length: int, digits: int
) -> None:
    topic, partition = "t" * length, min(10**digits - 1, names.PARTITION_MAX)
    if not names.is_partition_name(topic, partition):
        assert length + 1 + digits > 255
        with pytest.raises(KafkaError):
            names.partition_directory_name(topic, partition)
        return
    made = [names.partition_directory_name(topic, partition)]
    made += [names.marked_directory_name(topic, partition, HEX, mark) for mark in (names.DELETE_MARK, names.STRAY_MARK)]
    for name in made:
        assert len(name.encode()) <= 255
        assert names.partition_path("/d", name) == f"/d/{name}"
        parsed = names.parse_partition_directory(name)
        assert parsed is not None and parsed.partition == partition and topic.startswith(parsed.topic)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../meta.properties", "a\0b", "x" * 256, "ß" * 128])
def test_no_path_leads_out_of_its_directory(name: str) -> None:
    with pytest.raises(KafkaError):
        names.path_in("/d", name)
    with pytest.raises(KafkaError):
        names.partition_path("/d", name)


def test_a_mark_cannot_hide_a_way_out() -> None:
    name = "topic-0./../../escaped-delete"
    assert names.parse_partition_directory(name) is None
    with pytest.raises(KafkaError):
        names.partition_path("/d", name)


REPLICATION = Path(__file__).resolve().parents[2]
# The last two join no paths of files.
JOINS_FREELY = {"log/names.py", "cluster/znodes.py", "controller/partition_table.py"}


def test_nothing_else_joins_paths() -> None:
    joined = []
    for path in (*REPLICATION.rglob("*.py"), REPLICATION.parent / "server" / "cluster" / "start" / "from_kafka.py"):
        name = str(path.relative_to(REPLICATION)) if path.is_relative_to(REPLICATION) else path.name
        if "tests" in path.parts or name in JOINS_FREELY:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if _joins(node):
                joined.append(f"{name}:{node.lineno}")  # type: ignore[attr-defined]
    assert joined == []


def _joins(node: ast.AST) -> bool:
    """Whether a piece of code puts a slash between two names: `f"{a}/b"`, `a + "/b"`, `join(a, b)` of os.path."""
    if isinstance(node, ast.JoinedStr):
        pairs = zip(node.values, node.values[1:], strict=False)
        return any(isinstance(left, ast.FormattedValue) and _begins_below(right) for left, right in pairs)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _begins_below(node.right)
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("join", "joinpath")
        and not isinstance(node.value, ast.Constant)
    )


def _begins_below(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/")


def test_the_search_for_joined_paths_finds_them() -> None:
    for code in ('f"{a}/{b}"', 'f"{a}/b"', 'a + "/b"', "os.path.join(a, b)", "Path(a).joinpath(b)"):
        assert any(map(_joins, ast.walk(ast.parse(code)))), code
    for code in ('f"{a} of {b}"', '", ".join(a)', "a + b"):
        assert not any(map(_joins, ast.walk(ast.parse(code)))), code
