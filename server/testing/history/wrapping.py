"""A history that clients of a test write, and its check against Kafka's promises.

    history = History()
    producer = history.producer(KafkaProducer(...))
    consumer = history.consumer(KafkaConsumer(...))
    ...
    history.check()                                      # AssertionError with a paragraph for each broken promise

A wrapped client has all methods of the client. Nothing that it sends or returns is changed. The library is known by the methods:

| library | producer | consumer |
|-|-|-|
| confluent-kafka | `produce` | `consume` |
| aiokafka | `send_and_wait` | `getmany` |
| kafka-python | `send` | `poll` |
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ottla.server.testing.errors import LabError
from ottla.server.testing.history.checker import check
from ottla.server.testing.history.narration import FinalRead, Narration
from ottla.server.testing.history.observed import Observations
from ottla.server.testing.history.rules import Proof, Rule

Place = tuple[str, int]
UNSEEN_RULES = frozenset({Rule.INVENTED, Rule.HOLE})
"""Rules that need to know every record that was sent."""

RULES_OF_LOGS = frozenset({Rule.UNREAD, Rule.HANGING, Rule.HOLE})
"""Rules that need to know the logs as they are in the end."""


class History(Observations):
    """Record of what producers and consumers of one test see, and its check against Kafka's promises.

    With a `Kafka` use `kafka.history`, which also reads the brokers' logs.
    """

    def broken(self, final: Sequence[FinalRead] = (), *, all_producers: bool = False) -> list[Proof]:
        """Return the promises that were broken, each with the events that prove it.

        `final`: contents of the logs at the end; without them a lost record is noticed only if a consumer passed its offset.
        `all_producers`: True if every record of these topics was sent by a wrapped producer.
        """
        return self._judge(None, final, all_producers=all_producers)

    def _check_until(self, count: int, final: Sequence[FinalRead]) -> None:
        """Like `check` with `all_producers`, when clients may go on: only the first `count` observations are held against `final`."""
        self._raise(self._judge(count, final, all_producers=True))

    def _judge(self, count: int | None, final: Sequence[FinalRead], *, all_producers: bool) -> list[Proof]:
        narration = Narration(self._in_order(count), self._compacted, final)
        found = check(narration.events)
        return [each for each in found if self._counts(each, narration.read_places, all_producers=all_producers)]

    def check(self, final: Sequence[FinalRead] = (), *, all_producers: bool = False) -> None:
        """Raise AssertionError with a paragraph for each broken promise. Parameters: those of `broken`."""
        self._raise(self.broken(final, all_producers=all_producers))

    @staticmethod
    def _raise(found: Sequence[Proof]) -> None:
        if found:
            text = "\n\n".join(map(str, found))
            raise AssertionError(f"{len(found)} promise{'s' * (len(found) > 1)} of Kafka broken:\n\n{text}")

    @staticmethod
    def _counts(proof: Proof, read: Collection[Place], *, all_producers: bool) -> bool:
        violation = proof.violation
        if violation.rule in RULES_OF_LOGS and (violation.topic, violation.partition) not in read:
            return False
        return all_producers or violation.rule not in UNSEEN_RULES

    def compacted(self, *topics: str) -> None:
        """Declare topics as compacted: an older record may disappear after a newer one of its key."""
        self._compacted.update(topics)

    def producer(
        self, client: Any, name: str | None = None, *, idempotent: bool | None = None, acks: int | None = None
    ) -> Any:
        """Wrap a producer of kafka-python, aiokafka or confluent-kafka, so that what it sends is recorded.

        `name`: in reports; None for its class. `idempotent`, `acks` (-1: all): None for the client's own settings, which
        confluent-kafka does not show: there the defaults are False and -1.
        """
        from ottla.server.testing.history import wrapped_producers as kinds

        kind: Callable[..., Any]
        if _is_async(client) and hasattr(client, "send_and_wait"):
            kind = kinds.AiokafkaProducer
        elif hasattr(client, "produce") and hasattr(client, "flush"):
            kind = kinds.ConfluentProducer
        elif hasattr(client, "send") and hasattr(client, "flush"):
            kind = kinds.KafkaPythonProducer
        else:
            raise LabError(f"a producer of kafka-python, aiokafka or confluent-kafka is wanted, not {client!r}")
        return kind(self, client, name or type(client).__name__, idempotent=idempotent, acks=acks)

    def consumer(
        self, client: Any, name: str | None = None, *, group: str | None = None, committed_only: bool | None = None
    ) -> Any:
        """Wrap a consumer of kafka-python, aiokafka or confluent-kafka, so that what it reads is recorded.

        `name`: in reports; None for its class. `group`, `committed_only`: None for the client's own settings, which
        confluent-kafka does not show: there committed offsets are not checked, and `committed_only` is True.
        """
        from ottla.server.testing.history import wrapped_consumers as kinds

        kind: Callable[..., Any]
        if _is_async(client) and hasattr(client, "getmany"):
            kind = kinds.AiokafkaConsumer
        elif hasattr(client, "consume") and hasattr(client, "poll"):
            kind = kinds.ConfluentConsumer
        elif hasattr(client, "poll") and hasattr(client, "seek"):
            kind = kinds.KafkaPythonConsumer
        else:
            raise LabError(f"a consumer of kafka-python, aiokafka or confluent-kafka is wanted, not {client!r}")
        return kind(self, client, name or type(client).__name__, group=group, committed_only=committed_only)


def _is_async(client: Any) -> bool:
    return hasattr(client, "start") and hasattr(client, "stop")
