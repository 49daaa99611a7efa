"""Which release of Apache Kafka a broker looks like. No request tells; the requests that it serves do.

Each release is known by a version of a request that the one before did not serve (Kafka's message declarations).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.wire.schema import VersionRange

_SINCE = (
    ("4.4", 93, 0),  # StreamsGroupTopologyDescriptionUpdate
    ("4.3", 35, 5),  # DescribeLogDirs
    ("4.2", 2, 11),  # ListOffsets
    ("4.1", 0, 13),  # Produce
    ("4.0", 2, 10),  # ListOffsets
    ("3.9", 1, 17),  # Fetch
    ("3.8", 0, 11),  # Produce
    ("3.7", 1, 16),  # Fetch
    ("3.6", 24, 4),  # AddPartitionsToTxn
    ("3.5", 1, 15),  # Fetch
    ("3.3", 29, 3),  # DescribeAcls
    ("3.2", 11, 9),  # JoinGroup
    ("3.1", 1, 13),  # Fetch
    ("3.0", 2, 7),  # ListOffsets
    ("2.8", 0, 9),  # Produce
    ("2.7", 1, 12),  # Fetch
)


def release_of(versions: Mapping[int, VersionRange]) -> str:
    """Such as "4.4", the newest release whose requests are served."""
    for release, api_key, version in _SINCE:
        if api_key in versions and version in versions[api_key]:
            return release
    return "2.6 or older"
