"""What a broker is and has beyond a single one while it is a member of a cluster."""

from ottla.replication.isr_changes import IsrChanges


class ClusterMember:
    """See the module's docstring."""

    isr_changes: IsrChanges
