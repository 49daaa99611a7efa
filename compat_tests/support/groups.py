"""When a broker's groups can be used."""

from compat_tests.support.brokers import wait_until
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient


def wait_for_groups(bootstrap: str) -> None:
    """Return when every partition of the offsets topic is loaded; the first group makes that topic.

    Until then requests are refused, by Kafka as well. Members of groups try again by themselves. librdkafka's admin
    client does not, and the future of an altered offset succeeds although the offset was refused.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def are_loaded() -> bool:
        [group] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("any")]).values()
        try:
            group.result(timeout=20)
        except KafkaException as refusal:
            assert refusal.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS, refusal
            return False
        return not admin.list_consumer_groups().result(timeout=20).errors

    wait_until(are_loaded, "the groups are loaded")
