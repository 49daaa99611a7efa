"""What a broker is and has beyond a single one while it is a member of a cluster."""


class ClusterMember:
    """See the module's docstring."""
