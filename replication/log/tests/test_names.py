"""Names in a log directory."""

from __future__ import annotations

import pytest

from ottla.replication.log import names
from ottla.replication.log.names import PartitionDirectory, SegmentFile

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
