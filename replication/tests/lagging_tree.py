"""A coordination tree whose server may be behind what was written: only a multi lets it catch up."""

from collections.abc import Callable, Mapping, Sequence

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    CoordinationError,
    Node,
    NoNode,
    OnChange,
    OnSessionChange,
    Operation,
)
from ottla.replication.cluster.metadata_cache import BrokerRegistration
from ottla.replication.cluster.znodes import TopicAssignment


class LaggingTree:
    """A `Coordination` for reading; tests write with `put` and what rests on it."""

    def __init__(self) -> None:
        self.lags = False
        self.reads = 0
        self.problem: CoordinationError | None = None
        self.session_id = 1
        self.session_sure_until = float("inf")
        self._written: dict[str, Node] = {}
        self._shown: dict[str, Node] = {}

    def session_now(self) -> float:
        return 0.0

    def put(self, path: str, data: bytes | None) -> None:
        """Set a node, or remove it."""
        if data is None:
            self._written.pop(path, None)
        else:
            self._written[path] = Node(data, 0, 0)
        if not self.lags:
            self._shown = dict(self._written)

    def elect(self, node_id: int, epoch: int) -> None:
        self.put(znodes.CONTROLLER, znodes.encode_controller(node_id, 0))
        self.put(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch))

    def register(self, broker: BrokerRegistration) -> None:
        self.put(znodes.broker_path(broker.node_id), znodes.encode_broker(broker, 0))

    def make_topic(
        self, name: str, topic_id: bytes, *replicas: list[int], removing: Mapping[int, list[int]] | None = None
    ) -> None:
        assignment = TopicAssignment(topic_id, dict(enumerate(replicas)), {}, dict(removing or {}))
        self.put(znodes.topic_path(name), znodes.encode_topic(assignment))

    def _check(self) -> None:
        if self.problem is not None:
            raise self.problem

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        self._check()
        self.reads += 1
        return [self._shown.get(path) for path in paths]

    async def get(self, path: str) -> Node:
        (node,) = await self.get_all([path])
        if node is None:
            raise NoNode(path)
        return node

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        self._check()
        self._shown = dict(self._written)
        return [None] * len(operations)

    async def until_available(self) -> None:
        self._check()

    async def children(self, path: str) -> list[str]:
        raise NotImplementedError

    async def children_data(self, path: str) -> Mapping[str, Node]:
        self._check()
        self.reads += 1
        return {
            each.removeprefix(f"{path}/"): node for each, node in self._shown.items() if each.startswith(f"{path}/")
        }

    def watch_node(self, path: str, on_change: OnChange) -> Callable[[], None]:
        raise NotImplementedError

    def watch_children(self, path: str, on_change: OnChange) -> Callable[[], None]:
        raise NotImplementedError

    def watch_session(self, on_change: OnSessionChange) -> Callable[[], None]:
        raise NotImplementedError
