"""Transactions of a lab's Kafka, and how a test fences their producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.cluster.metadata_cache import TRANSACTION_STATE_TOPIC
from ottla.server.testing.errors import LabError, check
from ottla.server.testing.world.clock import pause
from ottla.server.testing.world.world import FROZEN_LOOKS, LOADING, PAUSE_S, SETTLED_LOOKS, SHOWN_LOOKS, TRANSACTION
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, ListTransactionsRequest
from ottla.wire.messages.producer_ids import InitProducerIdRequest

if TYPE_CHECKING:
    from ottla.server.testing.world.world import World

TIMEOUT_MS = 60_000
ENDING = ["PrepareCommit", "PrepareAbort"]
"""States of transactions whose end is decided, and whose markers are not all written."""


class Transaction(NamedTuple):
    """State of a transactional id. `state`: by Kafka's name, such as Ongoing. `partitions`: of the open transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    partitions: list[tuple[str, int]]


async def list_transactions(world: World) -> dict[str, Transaction]:
    """Return the transactions of all coordinators by their transactional ids."""
    found: dict[str, Transaction] = {}
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    for node, listed in await world.ask_coordinators(TRANSACTION_STATE_TOPIC, request):
        ids = [each.transactional_id for each in listed.transaction_states]
        answer = await world.ask(DescribeTransactionsRequest(transactional_ids=ids), node)
        for each in answer.transaction_states:
            partitions = sorted((topic.topic, index) for topic in each.topics for index in topic.partitions)
            told = each.transactional_id, each.transaction_state, each.producer_id, each.producer_epoch
            found[each.transactional_id] = Transaction(*told, partitions)
    return dict(sorted(found.items()))


async def until_marked(world: World, topic: str) -> None:
    """Wait until transactions that have been committed or aborted have their markers in a topic.

    A client's commit returns before that, as with Kafka. It gives up after SETTLED_LOOKS looks, on a frozen clock after
    FROZEN_LOOKS, and at once where the coordinator is paused, or cut off from the others.
    """

    def is_marked() -> bool:
        held = [
            each for node in world.running() for each in node.serving().replicas.partitions() if each.topic == topic
        ]
        return not any(each.is_leader and each.last_stable_offset < each.high_watermark for each in held)

    if is_marked():
        return
    await world.until_settled([TRANSACTION_STATE_TOPIC])  # once: it takes seconds where a test keeps brokers from it
    request = ListTransactionsRequest(state_filters=ENDING, producer_id_filters=[])
    for _ in range(SETTLED_LOOKS if world.loop.clock.factor else FROZEN_LOOKS):
        able = [node for node in world.running() if not (node.is_fenced or world.is_off_tree(node.node_id))]
        answers = [await world.ask(request, node) for node in able]
        if is_marked() or not any(each.transaction_states or each.error_code for each in answers):
            return
        await pause(PAUSE_S)


async def fence(world: World, transactional_id: str) -> None:
    """Take the next epoch of a transactional id, so that its producer is fenced. Raises LabError if it is unknown."""
    known = await list_transactions(world)
    if transactional_id not in known:
        ids = ", ".join(known) or "none"
        raise LabError(f"No producer has used the transactional id {transactional_id}; those known are: {ids}.")
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
    for _ in range(SHOWN_LOOKS):
        answer = await world.ask(request, await world.coordinator(transactional_id, TRANSACTION))
        # The transaction before is still being aborted, or the coordinator has just changed; a client tries again, too.
        if answer.error_code not in {ErrorCode.CONCURRENT_TRANSACTIONS, *LOADING}:
            break
        await pause(PAUSE_S)
    check(answer.error_code)
