"""Producer ids for idempotent producers. Those of transactional ones are in test_transaction_requests.py."""

from typing import Any

import pytest
import trio

from ottla.groupcoord.transactions.producer_ids import ProducerIdManager
from ottla.server.api.handlers.producer_ids import init_producer_id
from ottla.server.dispatch.context import RequestContext
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse


class FakeBroker:
    authorizer = None

    def __init__(self) -> None:
        self.refusal: ErrorCode | None = None
        self.producer_ids = ProducerIdManager(self._allocate_block, trio.Lock())
        self._first = 0

    async def _allocate_block(self) -> range:
        if self.refusal:
            raise KafkaError(self.refusal)
        self._first += 1000
        return range(self._first, self._first + 1000)


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


async def init(broker: Any, **details: Any) -> InitProducerIdResponse:
    request = InitProducerIdRequest(**({"transactional_id": None, "transaction_timeout_ms": 60_000} | details))
    answer = init_producer_id(request, RequestContext(broker, api_version=4))
    return answer if isinstance(answer, InitProducerIdResponse) else await answer


async def test_every_request_gets_a_fresh_id_and_epoch_0(broker: FakeBroker) -> None:
    first = await init(broker)
    second = await init(broker, producer_id=first.producer_id, producer_epoch=3)
    assert [first.producer_id, second.producer_id] == [1000, 1001]
    assert first.producer_epoch == second.producer_epoch == first.error_code == 0


@pytest.mark.parametrize("details", [{"producer_id": 5}, {"producer_epoch": 5}])
async def test_half_a_producer_is_refused(broker: FakeBroker, details: dict[str, Any]) -> None:
    response = await init(broker, **details)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


async def test_block_that_cannot_be_reserved_is_asked_for_again(broker: FakeBroker) -> None:
    broker.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    response = await init(broker)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and response.producer_id == -1
