"""Produce: append record batches.

Behaviour
* Each partition is answered for itself; one that is refused does not keep the others from being appended.
* Of a partition that is named twice the last records count, and it is answered once.
* Order of refusals: the front of any first batch that cannot be (its length or magic) -> that error for all; a
  transactional batch without a transactional id, or with one that the client may not write with ->
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED for all; unknown id; a topic that the client may not write to, whether it exists or
  not; unknown topic; what a request of this version may not hold at all (`check_produce_request_records`); acks not in (-1, 0, 1); internal
  topics; then the partition's own checks.
* A request before v3 may hold no batch for a partition: nothing is appended, and the answer is NONE without an offset.
* Once a batch of an idempotent producer was refused with an error after which clients try again, those behind it get the
  same error until it has come again (`replication/partition/retry_window.py`). Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER if
  the reason of the refusal is gone by then, and librdkafka then sends everything that has no answer under a new epoch.
  For the same reason a gap that a new leader meets is NOT_LEADER_OR_FOLLOWER at first: the leader before may have refused
  what is missing.
* acks=0 gets no answer; an error then closes the connection, which is how its client learns that something is wrong.
* acks=1 is answered when the leader holds the records as safely as the topic asks, acks=-1 when all in-sync replicas do.
  Without flush settings and followers both are true at once. After `timeout_ms` the answer is REQUEST_TIMED_OUT; the
  records stay.
* Requests of one connection are appended one after the other, so a producer's order is kept, but while they wait for
  their commits the next ones are appended: a `PendingAnswer`.
* The first batch of a transaction in a partition is appended when its coordinator has confirmed the partition, or has
  added it (`server/api/produce/verification.py`). A request with transactions of two producers is
  INVALID_PRODUCER_ID_MAPPING for all partitions.

Nearly all requests are answered by `server/api/produce/fast_path.py`, in the same way. Those that it leaves alone come here.

Work: checking compressed or very many records takes time, so large ones are checked in a thread first (`is_expensive`), and so
are those that a first look has not found good: the event loop decompresses no batch twice. A request of several megabytes or many partitions gives way between partitions, as does one whose small batches take long together.
Meanwhile the receive buffer serves other connections, so the records are copied, unless the request is so large that it has a buffer of its own (`server/network/inbox.py`). The
next request of the connection is not looked at before all of these are appended.
"""

from __future__ import annotations

from ottla.server.api.produce.appending import Appending
from ottla.server.api.produce.fast_path import FAST_PATH
from ottla.server.api.produce.request_checks import has_own_buffer
from ottla.server.broker import Broker
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse

# A request with more partitions would hold the event loop too long if it were appended in one go.
PARTITIONS_AT_ONCE = 500


@handles(ProduceRequest, fast_path=FAST_PATH)
def produce(request: ProduceRequest, context: RequestContext[Broker]) -> Answer[ProduceResponse]:
    appending = Appending(request, context)
    # A list, because a generator costs more than these few steps. Nearly every request takes this way.
    count = sum([len(topic.partition_data) for topic in request.topic_data])
    # A request gives way only between two partitions, so one partition gains nothing from turns.
    if count > 1 and (count > PARTITIONS_AT_ONCE or has_own_buffer(request)):
        return appending.append_in_slices()
    if request.transactional_id is not None and not appending.verify():
        return appending.append_in_slices()
    # The usual way has no coroutine: an answer that is there at once costs no switch of tasks.
    appending.append_all()
    if not appending.has_deferred:
        return appending.answer()
    # Meanwhile the receive buffer serves other connections. What is deferred has been copied, so nobody
    # needs the views of the buffer any more.
    appending.release_records()
    return appending.append_deferred()
