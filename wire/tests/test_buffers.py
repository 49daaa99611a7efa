"""Memory that is used again: never by two at once, never while somebody looks at it."""

import gc
import pickle
import threading

import pytest

from ottla.wire import buffers
from ottla.wire.buffers import IDLE_MAX, KEPT_BYTES, SCRATCH_BYTES, free_unused, lent
from ottla.wire.compression import Compression, compress
from ottla.wire.decompression import decompress, decompressed


@pytest.fixture(autouse=True)
def _none_idle() -> None:
    while not free_unused():
        pass


def idle() -> int:
    return len(buffers._idle)


def test_memory_is_used_again() -> None:
    with lent() as first:
        first.view[:5] = b"first"
    with lent() as second:
        assert second is first
        assert second.view[:5] == b"first"
        assert len(second.view) == SCRATCH_BYTES


def test_two_at_once_have_memory_of_their_own() -> None:
    with lent() as first, lent() as second:
        assert first is not second
        first.view[:5], second.view[:5] = b"first", b"other"
        assert first.view[:5] == b"first"
    assert idle() == 2


def test_a_view_ends_with_its_block() -> None:
    with lent() as memory:
        view = memory.view
    with pytest.raises(ValueError, match="released"):
        view[0]
    with decompressed(Compression.LZ4, compress(Compression.LZ4, b"data"), 100) as area:
        assert area == b"data"
    with pytest.raises(ValueError, match="released"):
        bytes(area)


@pytest.mark.parametrize(
    "keep", [lambda view: view[2:], memoryview, lambda view: [view[:3], view[3:]], lambda view: view.cast("b")]
)
def test_memory_that_somebody_looks_at_is_not_used_again(keep) -> None:
    with lent() as memory:
        memory.view[:5] = b"first"
        kept = keep(memory.view)
    assert idle() == 0
    before = [bytes(view[:3]) for view in (kept if isinstance(kept, list) else [kept])]
    for _ in range(3):
        with lent() as other:
            assert other is not memory
            other.view[:100] = b"x" * 100
    assert [bytes(view[:3]) for view in (kept if isinstance(kept, list) else [kept])] == before


def test_a_slice_of_decompressed_data_outlives_the_block_unharmed() -> None:
    data = bytes(range(256)) * 100
    with decompressed(Compression.ZSTD, compress(Compression.ZSTD, data), len(data)) as area:
        kept = area[100:]
    for _ in range(3):
        with decompressed(Compression.ZSTD, compress(Compression.ZSTD, bytes(len(data))), len(data)) as area:
            assert not any(area)
    assert kept == data[100:]


def test_where_nobody_can_tell_who_looks_at_it_memory_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_holders_of", None)
    buffers._idle.clear()
    with lent() as memory:
        memory.view[:4] = b"mine"
        kept = memory.view[:4]
    with lent() as memory:
        memory.view[:4] = b"your"
    assert bytes(kept) == b"mine" and not buffers._idle


def test_an_export_that_cannot_be_released_keeps_its_memory() -> None:
    with decompressed(Compression.LZ4, compress(Compression.LZ4, b"data"), 100) as area:
        pickled = pickle.PickleBuffer(area)  # it holds the view itself, as a codec does while it works
    assert bytes(pickled) == b"data" and idle() == 0


def test_a_block_that_fails_gives_its_memory_back() -> None:
    with pytest.raises(KeyError), lent() as memory:
        raise KeyError
    gc.collect()
    with lent() as other:
        assert other is memory


def test_memory_that_was_filled_far_goes_back_to_the_system() -> None:
    data = bytes(KEPT_BYTES + 1)
    compressed = compress(Compression.LZ4, data)
    with decompressed(Compression.LZ4, compressed, len(data)) as area:
        assert len(area) == len(data)
    assert idle() == 0
    # It is given away instead of being copied, and stays what it is.
    result = decompress(Compression.LZ4, compressed, len(data))
    with lent() as memory:
        memory.view[:1000] = b"x" * 1000
    assert result == data


def test_few_wait_for_the_next() -> None:
    crowd = [lent() for _ in range(IDLE_MAX + 3)]
    for each in crowd:
        each.__enter__()
    for each in crowd:
        each.__exit__()
    assert idle() == IDLE_MAX


def test_idle_memory_goes_back_when_none_was_lent_for_a_while() -> None:
    with lent():
        pass
    assert not free_unused() and idle() == 1
    assert free_unused() and idle() == 0


def test_threads_do_not_see_each_others_data() -> None:
    sizes = [10, 70_000, 300_000, 1 << 20]
    wrong: list[int] = []

    def work(number: int) -> None:
        data = bytes([number]) * sizes[number % len(sizes)]
        for codec in (Compression.LZ4, Compression.ZSTD, Compression.SNAPPY):
            compressed = compress(codec, data)
            for _ in range(20):
                with decompressed(codec, compressed, len(data)) as area:
                    if area != data:
                        wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert idle() <= IDLE_MAX
