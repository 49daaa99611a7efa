"""Names of clients' metrics and their labels, as Prometheus takes them: letters, digits and underscores.

`org.apache.kafka.producer.record.send.total` becomes `org_apache_kafka_producer_record_send_total`. A name from elsewhere gets
a beginning of its own, so that no client can add to what the broker itself tells.
"""

import re

NAME_LENGTH_MAX, LABEL_LENGTH_MAX = 200, 64
KAFKA, ELSEWHERE = "org_apache_kafka_", "client_telemetry_"
OWN_LABELS = ("client_instance_id", "client_id")
"""What the broker itself says of each number."""
_RESERVED = frozenset([*OWN_LABELS, "le", "quantile"])
_OTHERS = re.compile(r"[^a-zA-Z0-9_]+")


def family_name(name: str) -> str | None:
    """The name of a metric; None: it is too long, or none."""
    if not name or len(name) > NAME_LENGTH_MAX:
        return None
    made = _OTHERS.sub("_", name)
    return made if made.startswith(KAFKA) else ELSEWHERE + made


def label_name(name: str) -> str | None:
    """The name of a label; None: it is too long, or none, or another's."""
    if not name or len(name) > LABEL_LENGTH_MAX:
        return None
    made = _OTHERS.sub("_", name)
    # Two underscores at the beginning are for Prometheus itself.
    made = f"_{made.lstrip('_')}" if made.startswith("_") else made
    if made[0].isdigit():
        made = f"_{made}"
    return None if made in _RESERVED else made
