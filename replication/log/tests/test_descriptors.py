"""Who may have how many of the process's descriptors."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.replication.log.descriptors import CACHED_FILES_MAX, LIMIT_MIN, Descriptors, raise_limit
from ottla.replication.log.storage import FileCache, FileRegion, LazyFile
from ottla.server.testing.memory.storage import MemoryStorage


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [LIMIT_MIN, 300, 512, 1024, 4096, 65_536, 1 << 20])
def test_all_shares_together_are_within_the_limit(limit: int) -> None:
    budget = Descriptors(limit)
    files, other = FileCache(MemoryStorage(), descriptors=budget), FileCache(MemoryStorage(), descriptors=budget)
    for _ in range(budget.connections_max):
        budget.connection_opened()
    assert budget.files_max >= 16
    used = budget.reserve + budget.connections_max + budget.regions_max + 2 * budget.files_max
    assert used <= limit
    assert budget.connections_max >= limit // 3
    assert budget.flushed_files_max <= budget.reserve // 2
    assert not len(files) and not len(other)


def test_files_have_what_connections_do_not_need() -> None:
    budget = Descriptors(1024)
    FileCache(MemoryStorage(), descriptors=budget)
    idle = budget.files_max
    budget.connection_opened()
    assert budget.files_max == idle - 1
    budget.connection_closed()
    assert budget.files_max == idle <= CACHED_FILES_MAX


def opened(cache: FileCache, count: int) -> list[LazyFile]:
    files = []
    for index in range(count):
        cache.storage.write(f"/{index}", b"data")
        files.append(LazyFile(cache, f"/{index}"))
        files[-1].open()
    return files


def test_open_files_make_room_for_connections_as_these_come() -> None:
    budget = Descriptors(LIMIT_MIN)
    cache = FileCache(MemoryStorage(), descriptors=budget)
    files = opened(cache, 400)
    for _ in range(budget.connections_max):
        budget.connection_opened()
        assert len(cache) <= budget.files_max
        assert budget.reserve + budget.connections + budget.regions_max + len(cache) <= LIMIT_MIN
    assert sum(file.file is not None for file in files) == budget.files_max
    assert all(file.open().read_at(0, 4) == b"data" for file in files)


def test_a_region_counts_until_nobody_has_it() -> None:
    budget = Descriptors(LIMIT_MIN)
    (file,) = opened(FileCache(MemoryStorage()), 1)
    regions = [FileRegion(file.open(), 0, 4) for _ in range(3)]
    for region in regions[:2]:
        region.count_in(budget.regions)
    del region
    assert budget.regions_left == budget.regions_max - 2
    regions.clear()
    assert budget.regions_left == budget.regions_max


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_to_the_hard_one(limits: tuple[int, int]) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    assert raise_limit() == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_hard_limit_that_is_not_granted_is_no_obstacle(
    limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[tuple[int, int]] = []

    def refuse_the_hard_limit(what: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > 20_000:
            raise ValueError("current limit exceeds maximum limit")
        given.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda what: (256, 1 << 62))
    monkeypatch.setattr(resource, "setrlimit", refuse_the_hard_limit)
    assert raise_limit() == 10_240
    assert given == [(10_240, 1 << 62)]
    monkeypatch.undo()
