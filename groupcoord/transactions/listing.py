"""ListTransactions: the transactional ids that this broker coordinates, filtered."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.groupcoord.transactions.metadata import STATES_BY_NAME, TransactionMetadata
from ottla.groupcoord.transactions.service import ELEMENTS_PER_SLICE, TransactionCoordinator
from ottla.groupcoord.transactions.shard import TransactionShard
from ottla.wire.answers import Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.wire.time_slice import TimeSlice

IsWanted = Callable[[TransactionMetadata], bool]


def list_transactions(
    coordinator: TransactionCoordinator, request: ListTransactionsRequest
) -> Worked[ListTransactionsResponse]:
    """Return the transactional ids that match the request's filters; an error while any shard is being loaded."""
    try:
        shards = coordinator.shards()
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code, unknown_state_filters=[], transaction_states=[])
    unknown = list(dict.fromkeys(name for name in request.state_filters if name not in STATES_BY_NAME))
    response = ListTransactionsResponse(error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=[])
    listed = _listed(shards, _filter(request, coordinator.timestamp_ms()))
    if sum(map(len, shards)) > ELEMENTS_PER_SLICE:
        return _list_in_slices(response, listed)
    response.transaction_states = [each for each in listed if each is not None]
    return response


async def _list_in_slices(
    response: ListTransactionsResponse, listed: Iterator[ListedTransaction | None]
) -> ListTransactionsResponse:
    time_slice = TimeSlice()
    for each in listed:
        if each is not None:
            response.transaction_states.append(each)
        if time_slice.is_over():
            await time_slice.yield_if_over()
    return response


def _listed(shards: list[TransactionShard], is_wanted: IsWanted) -> Iterator[ListedTransaction | None]:
    """Yield the entry of each transactional id, or None if the id does not match or is forgotten by now."""
    for shard in shards:
        for transactional_id in shard.ids():
            known = shard.known(transactional_id)
            if known is None or not is_wanted(known):
                yield None
            else:
                yield ListedTransaction(
                    transactional_id=transactional_id,
                    producer_id=known.producer_id,
                    transaction_state=known.state.state_name,
                )


def _filter(request: ListTransactionsRequest, timestamp_ms: int) -> IsWanted:
    """Return the request's filter. Unknown states are ignored. If all named states are unknown, no id matches."""
    states = {STATES_BY_NAME[name] for name in request.state_filters if name in STATES_BY_NAME}
    producer_ids = set(request.producer_id_filters)
    duration_ms = request.duration_filter

    def is_wanted(known: TransactionMetadata) -> bool:
        if producer_ids and known.producer_id not in producer_ids:
            return False
        if request.state_filters and known.state not in states:
            return False
        return duration_ms < 0 or timestamp_ms - known.start_timestamp_ms > duration_ms

    return is_wanted
