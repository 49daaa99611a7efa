"""The differences from Apache Kafka that are meant, each with its reason. `test_differential.py` finds those nobody needs."""

from compat_tests.differential.comparison import Allowed

ALLOWED: list[Allowed] = []
