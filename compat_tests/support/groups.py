"""When a broker's groups can be used."""

from collections.abc import Callable

from compat_tests.support.brokers import wait_until
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

MOVING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)


def wait_for_groups(bootstrap: str) -> None:
    """Return when every partition of the offsets topic is loaded; the first group makes that topic.

    Until then requests are refused, by Kafka as well. Members of groups try again by themselves. librdkafka's admin
    client does not, and the future of an altered offset succeeds although the offset was refused. It asks three times for
    a coordinator, within half a second, and then waits without asking: so a new client asks again.
    """

    def are_loaded() -> bool:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        [group] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("any")]).values()
        try:
            group.result(timeout=5)
            return not admin.list_consumer_groups().result(60).errors
        except TimeoutError:
            return False
        except KafkaException as refusal:
            assert refusal.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS, refusal
            return False

    wait_until(are_loaded, "the groups are loaded", 120)


def ask_coordinator(ask: Callable[[], list[TopicPartition]]) -> int:
    """The one offset of the answer."""
    [told] = answered(ask)
    return told.offset


def answered(ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """The answer without errors; while a coordinator is moving or begins, whoever is asked may have to say so."""

    def answer() -> list[TopicPartition] | None:
        try:
            told = ask()
            failures = [each.error for each in told if each.error is not None]
        except KafkaException as exception:
            failures = [exception.args[0]]
        assert all(failure.code() in MOVING for failure in failures), failures
        return None if failures else told

    return wait_until(answer, "the coordinator answers")
