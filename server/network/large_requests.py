"""Requests of many small fields, which are decoded and answered in a thread, and long answers that many clients ask for.

Answers about the whole cluster are kept encoded until the cluster changes (`LongAnswers`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.network.sliced_work import computed, free_in_slices, is_short
from ottla.wire.answers import EncodedAnswer, PendingAnswer, Worked
from ottla.wire.errors import KafkaError, ProtocolViolation
from ottla.wire.limits import REQUEST_WITH_LONG_BYTES_MAX, REQUEST_WITHOUT_RECORDS_BYTES_MAX

if TYPE_CHECKING:
    from ottla.server.dispatch.context import RequestContext
    from ottla.server.network.calls import Call
    from ottla.server.network.pending import PendingAnswers, Waiting
    from ottla.wire.schema import Message, Struct

# Smaller frames are decoded at once: a hop to a thread and back costs about 86 us.
LARGE_FRAME_BYTES = 64 * 1024

# One thread for decoding and encoding: more would only contend with the event loop for the interpreter.
_large_codecs = trio.CapacityLimiter(1)


def check_large(call: Call, size: int) -> None:
    """Raise ProtocolViolation if a request of `size` bytes is too large to copy.

    Requests between brokers have no limit, because a controller may name all partitions.
    """
    is_bounded = call.route.long_bytes or not call.route.between_brokers
    size_max = REQUEST_WITH_LONG_BYTES_MAX if call.route.long_bytes else REQUEST_WITHOUT_RECORDS_BYTES_MAX
    if size > size_max and is_bounded:
        raise ProtocolViolation(f"a {call.route.name} request of {size} bytes")


async def handle_large(
    call: Call,
    body: bytes | bytearray,
    context: RequestContext[Any],
    peer_has_left: Callable[[], bool],
    let_go: Callable[[], None],
) -> Any:
    """Decode a large request in a thread and handle it; return its response or a pending answer.

    `let_go` releases the memory that is counted for the request. Raises ConnectionResetError if the request only reads
    and the peer has disconnected.
    """
    async with _large_codecs:
        # The line may have been long. Work for a peer that has left would keep those behind it waiting for nothing.
        if call.route.reads_only and peer_has_left():
            raise ConnectionResetError("the peer has left while its request waited")
        request = await trio.to_thread.run_sync(call.decode_large, body, 0, len(body))
    if isinstance(request, ProtocolViolation):
        try:
            raise request
        finally:
            del request  # or else it would hold this frame, and this frame it
    context.api_version = call.version
    call.route.request_count += 1
    call.route.request_bytes += len(body)
    try:
        result = call.handler(request, context)
        # A long poll or a join may wait for minutes, and must not keep room from others for so long.
        if call.route.abandonable:
            let_go()
        response = await result if isinstance(result, CoroutineType) else result
        # Waited for here: what the request takes counts against the budget as long as this runs.
        if isinstance(response, PendingAnswer) and not response.is_abandonable:
            response = await finished(response)
    except KafkaError as error:
        return await finished(error_answer(call, error, request))
    # A pending answer still needs the request. Otherwise the list is the last to hold it, so it goes in pieces.
    if not isinstance(response, PendingAnswer):
        decoded = [request]
        del request, result
        await free_in_slices(decoded)
    return response


async def answer_awaited(waiting: Waiting, pending: PendingAnswers) -> None:
    """Await the work of a request; send the response after all earlier ones. A thread encodes long responses."""
    call = waiting.call
    # A long answer, or one about the whole cluster, is encoded by a thread.
    may_be_long = waiting.is_large or call.route.answers_at_length
    try:
        response = await waiting.work
    except KafkaError as error:
        if waiting.request is None:
            raise  # a large request has been answered where it was decoded
        response = await finished(error_answer(call, error, waiting.request))
        may_be_long = True
    if may_be_long and type(response) is call.response_class and not pending and not is_short(response):
        if waiting.charge is not None:
            response = pending.throttling.settle(call, response, waiting.charge)
        parts = await encode_large(call, response)
        pending.outbox.add(call, waiting.correlation_id, parts)
        encoded: list[Struct] = [response]
        del response
        # The list above is the last to hold the answer, which may be tens of thousands of objects.
        await free_in_slices(encoded)
    else:
        pending.answer(call, waiting.correlation_id, response, waiting.charge)


async def encode_large(call: Call, response: Any) -> list[Any]:
    """Encode a long response in a thread; return its body in pieces."""
    return await trio.to_thread.run_sync(call.encoded, response, limiter=_large_codecs)


def error_answer(call: Call, error: KafkaError, request: Message) -> Worked[Any]:
    """Return the response that reports `error` for the whole request, in the form of its API.

    A long response, with an element for everything that the request names, is made in a thread. Raises CloseConnection
    if the request has acks=0, as in Kafka.
    """
    from ottla.wire.error_answers import error_answer  # here, because most handlers answer for themselves

    route = call.route
    route.errors[error.code] = route.errors.get(error.code, 0) + 1
    # Only producers say how many acknowledgements they want.
    if getattr(request, "acks", None) == 0:
        raise CloseConnection(f"acks=0 and error {error.code!r}") from error
    make = partial(error_answer, request, call.response_class, call.version, error.code, error.message)
    return make() if is_short(request) else computed(make, in_thread=True)


CHANGED = -1
ANSWERS_MAX = 8  # versions, listeners and options that clients of one cluster ask with


class _Made(NamedTuple):
    answer: EncodedAnswer
    number: int  # answers are counted in the order in which they were begun
    cluster_version: int  # `CHANGED`: it changed while the answer was made


class LongAnswers:
    """Cache of encoded answers about the whole cluster, such as the metadata of all topics.

    Answers are made one at a time. Equal requests that arrive before an answer is begun share this answer. So a crowd
    of requests costs as much work and memory as one or two.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, _Made] = {}
        self._begun = 0
        self._turn = trio.Lock()

    def get(self, cluster_version: int, key: Hashable) -> EncodedAnswer | None:
        """Return the cached answer for `key`; None if there is none, or the cluster has changed since it was made."""
        made = self._made.get(key)
        return made.answer if made is not None and made.cluster_version == cluster_version else None

    def make(
        self, key: Hashable, put_together: Callable[[], Awaitable[bytes]], cluster_version: Callable[[], int]
    ) -> Coroutine[Any, Any, EncodedAnswer]:
        """Return a coroutine that makes the answer for `key`, or shares one whose making begins after this call.

        If the cluster changes during the work, parts of the answer may be older than others.
        """
        # Noted now and not when the coroutine begins: only an answer begun after the question may be given to it.
        return self._make(key, put_together, cluster_version, asked=self._begun)

    async def _make(
        self,
        key: Hashable,
        put_together: Callable[[], Awaitable[bytes]],
        cluster_version: Callable[[], int],
        *,
        asked: int,
    ) -> EncodedAnswer:
        # One at a time: each takes the work and the memory of a whole cluster.
        async with self._turn:
            made = self._made.get(key)
            # Somebody in front may have made what this one needs: begun after it asked, or still true.
            if made is not None and (made.number > asked or made.cluster_version == cluster_version()):
                return made.answer
            self._begun += 1
            number, before = self._begun, cluster_version()
            answer = EncodedAnswer(await put_together())
            # Clients of one cluster ask in few ways. The limit is for a peer that asks in ever new ones.
            if len(self._made) >= ANSWERS_MAX:
                self._made.clear()
            self._made[key] = _Made(answer, number, before if cluster_version() == before else CHANGED)
            return answer
