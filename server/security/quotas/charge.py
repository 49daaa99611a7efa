"""Charge of one request against the quotas of its client, and the pause that follows. Sans-IO.

Quotas are charged when the answer is there. If several are exceeded the longest pause counts (Kafka's KafkaApis):

| request              | request_percentage       | bytes                                                            |
|----------------------|--------------------------|------------------------------------------------------------------|
| Produce              | unless acks=0            | producer_byte_rate, of the request                               |
| Fetch of a consumer  | yes                      | consumer_byte_rate, of the answer; if there has to be a pause the answer is empty and its bytes do not count |
| ShareFetch           | yes                      | consumer_byte_rate, of the answer, which is given: its records belong to the member by now |
| of another broker    | no, unless it is refused because who asks is none |                                         |
| changes of topics    | yes                      | controller_mutation_rate of the controller, see `take_mutations` and `carry` |
| any other            | yes                      |                                                                  |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.server.security.quotas.client_quotas import ClientQuotas

PERCENT_PER_NANOSECOND = 100 / 1e9


class Charge:
    """Charge of one request. `is_settled`: the request is answered, and nothing can be charged any more."""

    __slots__ = (
        "_client_id",
        "_clock_ms",
        "_mutations_pause_ms",
        "_mutations_paused_ms",
        "_quotas",
        "_request_bytes",
        "_user",
        "is_exempt",
        "is_settled",
        "pause_ms",
        "spent_ns",
    )

    def __init__(
        self,
        quotas: ClientQuotas,
        clock_ms: Callable[[], int],
        principal: str,
        client_id: str,
        *,
        produced_bytes: int = 0,
        is_exempt: bool = False,
    ) -> None:
        """`produced_bytes`: how long a request with records is. `is_exempt`: request_percentage does not count it."""
        self._quotas = quotas
        self._clock_ms = clock_ms
        self._user = principal.partition(":")[2]
        self._client_id = client_id
        self._request_bytes = produced_bytes
        self.is_exempt = is_exempt
        self.is_settled = False
        self.pause_ms = 0
        self.spent_ns = 0
        self._mutations_pause_ms = self._mutations_paused_ms = 0

    @property
    def is_timed(self) -> bool:
        """True if `spent_ns` has to be measured."""
        return self._quotas.request.is_on

    def settle(self, *, is_answered: bool = True) -> int:
        """Charge the quotas, once, as the request is done; return the client's pause in ms."""
        if not self.is_settled:
            now_ms = self._clock_ms()
            self._settle_time(now_ms, is_answered=is_answered)
            if self._request_bytes and self._quotas.produce.is_on:
                self._pause(self._quotas.produce.record(self._user, self._client_id, self._request_bytes, now_ms))
        return self.pause_ms

    def _settle_time(self, now_ms: int, *, is_answered: bool) -> None:
        self.is_settled = True
        if self._mutations_pause_ms:
            # The request may have taken long since then.
            self._pause(self._mutations_pause_ms - (now_ms - self._mutations_paused_ms))
        if self._quotas.request.is_on and is_answered and not self.is_exempt:
            spent = self.spent_ns * PERCENT_PER_NANOSECOND
            self._pause(self._quotas.request.record(self._user, self._client_id, spent, now_ms))

    def _pause(self, pause_ms: int) -> None:
        self.pause_ms = max(self.pause_ms, pause_ms)

    # ------------------------------------------------------------------ what handlers say

    def exempt(self) -> None:
        """Exempt a request that turned out to be another broker's."""
        self.is_exempt = True

    def count(self) -> None:
        """Count a request that turned out not to be a broker's."""
        self.is_exempt = False

    @property
    def fetched_bytes_max(self) -> float:
        """Size of an answer with records beyond which a pause is certain."""
        fetch = self._quotas.fetch
        if self.is_settled or self.is_exempt or not fetch.is_on:
            return math.inf
        return fetch.most_at_once(self._user, self._client_id, self._clock_ms())

    def settle_fetch(self, answer_bytes: int, *, is_given: bool = False) -> int:
        """Charge an answer with records of that size; return the pause in ms. `is_given`: the answer goes out all the same."""
        if self.is_settled or self.is_exempt:
            return 0
        now_ms, fetch = self._clock_ms(), self._quotas.fetch
        self._settle_time(now_ms, is_answered=True)
        if fetch.is_on:
            self._pause(fetch.record(self._user, self._client_id, answer_bytes, now_ms))
            if self.pause_ms and not is_given:
                fetch.take_back(self._user, self._client_id, answer_bytes, now_ms)
        return self.pause_ms

    def carry(self, pause_ms: int) -> None:
        """Take over the pause that the broker has set which the request was forwarded to."""
        self._mutations_pause_ms, self._mutations_paused_ms = pause_ms, self._clock_ms()

    def take_mutations(self, count: int, *, is_strict: bool) -> bool:
        """Charge the creation or deletion of partitions by the controller. False: it must not happen yet.

        Clients of before KIP-599 do not know that error (not `is_strict`). For them it is done, and they pause after it.
        """
        mutations = self._quotas.mutations
        if self.is_settled or not mutations.is_on:
            return True
        now_ms = self._clock_ms()
        take = mutations.try_to_record if is_strict else mutations.record
        pause_ms = take(self._user, self._client_id, count, now_ms)
        if pause_ms:
            self._mutations_pause_ms, self._mutations_paused_ms = pause_ms, now_ms
        return not (is_strict and pause_ms)
