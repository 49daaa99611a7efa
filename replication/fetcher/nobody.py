"""What a broker that is alone follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition


class FollowsNobody:
    """In the place of `ReplicaFetchers`: there is no other broker that could lead."""

    def follow(self, partition: Partition) -> None:
        """There is nobody to fetch from."""

    def forget(self, partition: Partition) -> None:
        """Nothing is fetched."""
