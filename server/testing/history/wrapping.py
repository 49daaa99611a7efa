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

from collections.abc import Callable
from typing import Any

from ottla.server.testing.errors import LabError
from ottla.server.testing.history.observed import Observations


class History(Observations):
    """A history of clients of other libraries. Settings are read from a client where it says them."""

    def producer(
        self, client: Any, name: str | None = None, *, idempotent: bool | None = None, acks: int | None = None
    ) -> Any:
        """Return a producer that does what `client` does, and takes it down.

        `client`: of kafka-python, aiokafka or confluent-kafka. `name`: None for that of its class. `idempotent` and `acks` (-1: all):
        None for what the client's settings say. confluent-kafka does not say; its defaults are False and -1.
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
        """Return a consumer that does what `client` does, and takes it down.

        `client`: of kafka-python, aiokafka or confluent-kafka. `name`: None for that of its class. `group` and `committed_only`: None
        for what the client's settings say. confluent-kafka does not say: no group's offsets are checked then, and its
        default is True.
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
