"""Which log directories are refused at start, and which ids the others get."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from ottla.replication.log.checkpoints import MetaProperties
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.replication.replica_manager.log_directory_registry import (
    Identities,
    Known,
    KnownDirectory,
    SeenDirectory,
    identify,
)
from ottla.wire.text import uuid_text

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
KNOWN = {A: KnownDirectory("/a"), B: KnownDirectory("/b")}


def seen(path: str, directory_id: bytes | None = None, *, version: int = 0) -> SeenDirectory:
    return SeenDirectory(path, True, MetaProperties(version, 1, "cluster", directory_id))


def empty(path: str) -> SeenDirectory:
    return SeenDirectory(path, True, None)


def offline(path: str) -> SeenDirectory:
    return SeenDirectory(path, False, None)


def identified(known: Known | None, *found: SeenDirectory, accepted: Collection[str] = ()) -> Identities:
    new = iter(bytes([number]) * 16 for number in range(100, 110))
    return identify(known, found, accepted=accepted, new_uuid=lambda: next(new))


def new(number: int) -> bytes:
    return bytes([100 + number]) * 16


def accepted_as(known: Known | None, *found: SeenDirectory, accepted: Collection[str] = ()) -> Mapping[str, bytes]:
    """The ids, after a check that the next start finds everything as it was."""
    first = identified(known, *found, accepted=accepted)
    there = [seen(path, directory_id) for path, directory_id in first.ids.items()]
    there += [each for each in found if not each.is_online]
    after = {key: entry._replace(is_new=False) for key, entry in first.known.items()}
    assert identified(after, *there) == Identities(first.ids, after)
    # a crash before the ids were in the directories
    assert identified(first.known, *found).ids == first.ids
    return first.ids


def refused(known: Known | None, *found: SeenDirectory) -> str:
    with pytest.raises(LogDirectoryProblem) as problem:
        identified(known, *found)
    return str(problem.value)


def test_the_first_start_gives_ids() -> None:
    assert accepted_as(None, empty("/a"), empty("/b")) == {"/a": new(0), "/b": new(1)}
    assert identified(None, empty("/a")).known == {new(0): KnownDirectory("/a", is_new=True)}


def test_directories_that_others_wrote_keep_the_ids_they_have() -> None:
    assert accepted_as(None, seen("/a"), seen("/b", B, version=1)) == {"/a": new(0), "/b": B}
    # The first is one that was formatted for KRaft.
    assert accepted_as(None, seen("/a", A, version=1), empty("/b")) == {"/a": A, "/b": new(0)}


def test_the_same_directories_are_fine_wherever_they_are_mounted() -> None:
    assert accepted_as(KNOWN, seen("/a", A), seen("/b", B)) == {"/a": A, "/b": B}
    assert accepted_as(KNOWN, seen("/b", A), seen("/c", B)) == {"/b": A, "/c": B}
    assert accepted_as(KNOWN, empty("/a"), seen("/c", A), seen("/b", B)) == {"/a": new(0), "/c": A, "/b": B}


def test_an_added_directory_gets_an_id() -> None:
    assert accepted_as(KNOWN, seen("/a", A), seen("/b", B), empty("/c")) == {"/a": A, "/b": B, "/c": new(0)}


def test_an_empty_directory_where_one_was_is_refused() -> None:
    words = refused(KNOWN, seen("/a", A), empty("/b"))
    assert words.startswith(
        f"Log directory /b is empty, but this broker kept one there with directory.id {uuid_text(B)}"
    )
    assert words.endswith("--accept-empty-log-dir /b")
    assert "\n" not in words
    assert accepted_as(KNOWN, seen("/a", A), empty("/b"), accepted=["/b"]) == {"/a": A, "/b": new(0)}


def test_all_directories_of_a_broker_that_was_replaced_are_refused_until_they_are_accepted() -> None:
    assert "/a is empty" in refused(KNOWN, empty("/a"), empty("/b"))
    with pytest.raises(LogDirectoryProblem, match="/b is empty"):
        identified(KNOWN, empty("/a"), empty("/b"), accepted=["/a"])
    assert accepted_as(KNOWN, empty("/a"), empty("/b"), accepted=["/a", "/b"]) == {"/a": new(0), "/b": new(1)}


def test_a_foreign_directory_is_refused() -> None:
    words = refused(KNOWN, seen("/a", A), seen("/b", C))
    assert words.startswith(f"Log directory /b has directory.id {uuid_text(C)}, which this broker does not know.")
    assert words.endswith("--accept-empty-log-dir /b")
    assert accepted_as(KNOWN, seen("/a", A), seen("/b", C), accepted=["/b"]) == {"/a": A, "/b": C}


def test_a_directory_that_is_not_configured_any_more_is_missed() -> None:
    words = refused(KNOWN, seen("/a", A))
    assert words.startswith(f"Log directory /b, directory.id {uuid_text(B)}, is not among log.dirs any more")
    assert words.endswith("--accept-empty-log-dir /b")
    assert accepted_as(KNOWN, seen("/a", A), accepted=["/b"]) == {"/a": A}
    assert "is not among log.dirs" in refused(KNOWN, seen("/a", A), empty("/c"))


def test_one_that_cannot_be_read_is_offline_and_the_others_go_on() -> None:
    assert accepted_as(KNOWN, seen("/a", A), offline("/b")) == {"/a": A}
    found = identified(KNOWN, seen("/a", A), offline("/b"))
    assert found.known == KNOWN
    assert accepted_as(KNOWN, seen("/a", A), offline("/c")) == {"/a": A}  # the disk of /b may be there
    assert "/a is empty" in refused(KNOWN, empty("/a"), offline("/b"))


def test_a_directory_whose_properties_another_broker_has_written_keeps_its_id() -> None:
    assert accepted_as(KNOWN, seen("/a"), seen("/b", B)) == {"/a": A, "/b": B}


def test_a_crash_before_the_id_was_written_is_no_lost_disk() -> None:
    known = {A: KnownDirectory("/a", is_new=True)}
    assert identified(known, empty("/a")).ids == {"/a": A}
    assert identified({**known, B: KnownDirectory("/b")}, seen("/b", B)).known == {B: KnownDirectory("/b")}


def test_a_copied_directory_is_refused() -> None:
    assert refused(KNOWN, seen("/a", A), seen("/b", A)) == "The log directories /a and /b have the same directory.id"


def test_without_a_tree_an_empty_directory_beside_one_that_was_in_use_is_refused() -> None:
    assert "/a is empty" in refused(None, empty("/a"), seen("/b", B))
    assert accepted_as(None, empty("/a"), seen("/b", B), accepted=["/a"]) == {"/a": new(0), "/b": B}
