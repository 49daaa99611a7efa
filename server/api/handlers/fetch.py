"""Fetch: read record batches, now or when there are enough of them.

Behaviour
* Partitions are read in the order of the request or session. The first that has data returns at least one whole batch
  even if that is larger than all limits; the others keep within what the limits leave (KIP-74). A partition named twice
  is read once, as it was asked for last.
* The answer goes out at once if nothing is waited for (`server/api/fetch/waiting.py`): MaxWaitMs <= 0, no partition to read, MinBytes reached, an error
  or a diverging epoch anywhere. Otherwise the request waits until the partitions together have MinBytes to give, each
  counted up to its own limit, one of them changes its leader or is gone, or the time is over; then all are read again.
* Records travel as regions of the log files, straight from the page cache into the socket, each of which keeps a file open.
  When too many are on their way answers are shorter (`server/api/fetch/partition_reader.py`). Only versions below 4, which
  know no record batches, have them read and converted down to magic 0 or 1 (`server/api/fetch/down_conversion.py`); what comes
  behind such a request on its connection waits, as with Kafka.
* The event loop waits for no disk: a thread reads what is not in memory, and the connection waits (`server/api/fetch/reading.py`).
* With replica.selector.class a leader that has followers in sync in the consumer's rack names one of them instead of giving
  records (KIP-392). From v11 on consumers are served by followers, too, up to the high watermark these know.
* A topic that the client may not read is TOPIC_AUTHORIZATION_FAILED, whether it exists or not; unknown topic ids get an
  error. So is every partition to a replica that may not do a ClusterAction. Each request of a session checks this again.
* A partition with an error has high watermark -1 and no records; the others are served. A limit below zero and an
  isolation level that does not exist are UNKNOWN_SERVER_ERROR, as Kafka fails over them.
* A replica (ReplicaId >= 0) reads up to the log end, and is refused unless it follows the partition. Its fetch offset is
  the end of its log, unless the answer carries a diverging epoch. It gets nothing while the leader's replication throttle
  is exceeded, unless it is in sync. A broker that is alone has no followers.
* A consumer that exceeds its quota gets an empty answer, and nothing changes in its session (`server/security/quotas/`).
* In a large session only the partitions that may have news are read; the others are idle (`replication/partition/idle_partitions.py`).

Version notes
* v0-2 have no limit for the whole answer, and one batch more than a partition's limit allows is not given. v4 isolation
  level. v7 sessions (KIP-227). v9 and v12 fence by leader epochs.
  v13 topic ids. Clients below v6 do not know KAFKA_STORAGE_ERROR and get NOT_LEADER_OR_FOLLOWER in its place.
"""

from __future__ import annotations

from collections.abc import Coroutine

from ottla.replication.log.storage import NotCached, only_cached
from ottla.replication.partition.fetch_session import NamedPartitions
from ottla.server.api.fetch.down_conversion import converted
from ottla.server.api.fetch.partition_answers import refused_request
from ottla.server.api.fetch.partition_reader import DOWN_CONVERTED_BELOW, READ_COMMITTED
from ottla.server.api.fetch.reading import Reading
from ottla.server.api.fetch.responses import confirm_idle, response_to
from ottla.server.api.fetch.waiting import WaitingFetch, answer_in_slices
from ottla.server.broker import Broker
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import PARTITIONS_PER_SLICE, each_in_slices
from ottla.wire.answers import Answer, Worked
from ottla.wire.messages.fetch import FetchRequest, FetchResponse

READ_UNCOMMITTED = 0

Answered = FetchResponse | WaitingFetch


@handles(FetchRequest)
def fetch(request: FetchRequest, context: RequestContext[Broker]) -> Answer[FetchResponse]:
    # Only a request that names very many partitions is read in steps: steps would cost an ordinary fetch two
    # microseconds.
    count = sum([len(topic.partitions) for topic in request.topics])
    if request.forgotten_topics_data:
        count += sum([len(topic.partitions) for topic in request.forgotten_topics_data])
    return _fetch(request, context) if count <= PARTITIONS_PER_SLICE else _fetch_in_slices(request, context)


async def _fetch_in_slices(request: FetchRequest, context: RequestContext[Broker]) -> Answered:
    # The session is changed in one step, without giving way. So the long reading of names comes before.
    named = NamedPartitions(request, context.api_version, context.broker.cluster)
    await each_in_slices(named.steps(), lambda step: step)
    answer = _fetch(request, context, named)
    return await answer if isinstance(answer, Coroutine) else answer


def _fetch(
    request: FetchRequest, context: RequestContext[Broker], named: NamedPartitions | None = None
) -> Worked[Answered]:
    broker = context.broker
    opened = broker.fetch_sessions.open(
        request, context.api_version, broker.cluster, context.now_ms, context.principal, named
    )
    # Beside a session error Kafka sends no partitions and no session id. The client begins a new session then.
    if opened.error:
        return FetchResponse(error_code=opened.error, responses=[])
    reading = Reading(broker, request, context, opened)
    # Kafka notices an unknown level only when it reads. A request with nothing to read does not fail over it.
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED) and reading.has_readable_targets():
        return refused_request(request, context.api_version)
    # Before anything is read: partitions that must not stay idle become targets here.
    if opened.has_idle:
        confirm_idle(reading)
    if context.api_version < DOWN_CONVERTED_BELOW:
        return converted(reading)
    # A short request may stand for a session with very many partitions.
    if len(opened.targets) > PARTITIONS_PER_SLICE:
        return answer_in_slices(reading)
    # The ordinary fetch: all pages are in memory, and no task has to be woken. If one page is missing, all is read
    # again with the help of threads; nothing is lost, because a read changes no log.
    try:
        with only_cached:
            reading.read_all()
    except NotCached:
        return answer_in_slices(reading)
    return response_to(reading) if reading.is_final else WaitingFetch(reading)
