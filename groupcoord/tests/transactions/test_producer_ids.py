import pytest
import trio

from ottla.groupcoord.transactions.producer_ids import ProducerIdManager
from ottla.wire.errors import ErrorCode, KafkaError


class Blocks:
    """A counter of blocks, as the coordination service keeps it."""

    def __init__(self) -> None:
        self.reserved = 0
        self.error: ErrorCode | None = None

    async def allocate(self) -> range:
        await trio.lowlevel.checkpoint()
        if self.error:
            raise KafkaError(self.error)
        self.reserved += 1
        return range((self.reserved - 1) * 1000, self.reserved * 1000)


async def test_ids_are_counted_through_the_blocks() -> None:
    blocks = Blocks()
    manager = ProducerIdManager(blocks.allocate, trio.Lock())
    assert manager.take() is None
    assert [await manager.next() for _ in range(2001)] == list(range(2001))
    assert blocks.reserved == 3 and manager.take() == 2001


async def test_ids_are_not_given_out_again_after_a_restart() -> None:
    blocks = Blocks()
    first = ProducerIdManager(blocks.allocate, trio.Lock())
    assert await first.next() == 0
    second = ProducerIdManager(blocks.allocate, trio.Lock())
    assert await second.next() == 1000


async def test_callers_that_wait_together_share_one_block() -> None:
    blocks = Blocks()
    manager = ProducerIdManager(blocks.allocate, trio.Lock())
    ids: list[int] = []

    async def take() -> None:
        ids.append(await manager.next())

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(take)
    assert sorted(ids) == list(range(10)) and blocks.reserved == 1


async def test_block_that_cannot_be_reserved_is_an_error_until_it_can() -> None:
    blocks = Blocks()
    manager = ProducerIdManager(blocks.allocate, trio.Lock())
    blocks.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(KafkaError):
        await manager.next()
    blocks.error = None
    assert await manager.next() == 0
