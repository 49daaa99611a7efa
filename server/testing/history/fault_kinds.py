"""The faults that chaos (`faults.py`) and the simulation (`server/testing/simulation/faults.py`) cause, each by one name.

Histories, traces, the rules of the checker and `--faults` use these names; what was hit, and how, stands behind them.
`compat_tests/README.md` has them in a table.
"""

from enum import StrEnum


class FaultKind(StrEnum):
    """A fault that chaos or a simulation injects, or an operation that runs during it."""

    # processes
    KILLED = "SIGKILL"
    STOPPED = "SIGTERM"
    PAUSED = "SIGSTOP"
    SLOW = "slow processor"
    ROLLED = "rolling restart"
    # ways
    CUT_FROM_PEERS = "partition from peers"
    CUT_FROM_PEER = "partition from one peer"
    CUT_FROM_ZOOKEEPER = "partition from ZooKeeper"
    CUT_FROM_BOTH = "partition from both"
    CUT_FROM_CLIENTS = "partition from clients"
    CONNECTIONS_BROKEN = "connections broken"
    LEFT_ALONE = "left alone"
    # disks
    DISK_FULL = "disk full"
    DISK_FAILED = "disk failed"
    CALL_FAILED = "call failed"
    NO_DESCRIPTORS = "no descriptors"
    POWER_LOST = "power lost"
    # ZooKeeper, or who holds the tree, and the controller
    ZOOKEEPER_RESTARTED = "ZooKeeper restarted"
    ZOOKEEPERS_LEADER_KILLED = "ZooKeeper leader killed"
    HOLDER_KILLED = "holder killed"
    HOLDER_PAUSED = "holder paused"
    SESSION_EXPIRED = "session expired"
    SESSION_RESET = "session reset"
    CONTROLLER_REMOVED = "controller removed"
    ELECTED_WHILE_FENCED = "elected while fenced"
    # operators
    REASSIGNED = "reassignment"
    LEADERS_MOVED = "leaders moved"
    LEVEL_CHANGED = "level changed"
    TOPIC_CREATED = "topic created"
    TOPIC_DELETED = "topic deleted"
