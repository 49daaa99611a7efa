"""The differences from Apache Kafka that are meant, each with its reason. `test_differential.py` finds those nobody needs."""

from compat_tests.differential.comparison import Allowed

ALLOWED: list[Allowed] = [
    Allowed(
        "create_topics/what_the_answer_tells",
        r"main .* topics\[0\]\.configs\[21\]\.config_source",  # min.insync.replicas
        "Kafka's controller sets min.insync.replicas for all brokers by itself, for eligible leader replicas (KIP-966)",
        ottla=5,
    ),
    Allowed(
        "create_partitions/too_many",
        r"main \d+ of 1 results\[0\]\.error_(code|message)",
        "Kafka fails in the middle: it answers UNKNOWN_SERVER_ERROR and keeps 10,000 of the partitions; Ottla refuses all",
    ),
]
